"""Exports a model: writes a file, compares it with the network, and only then gives it its name."""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from oneway import __version__
from oneway.common.errors import UserError
from oneway.common.words import say
from oneway.ops.losses import pixels_of, upsample
from oneway.runs.atomic import sync, write_atomically
from oneway.runs.environment import hardware
from oneway.tools.evaluate import as_input
from oneway.tools.export.agreement import BATCHES, compare, refuse_difference
from oneway.tools.export.card import model_card
from oneway.tools.export.formats import FORMATS, Call
from oneway.tools.export.graph import Output
from oneway.tools.predict.predictor import Predictor, load

TIMED_SIZES = {False: (256, 512), True: (32, 32)}
"""Of images to segment, and to classify."""

TIMED_RUNS = 3
NO_LICENCE = "not stated; fill it in, and mind the licence of the training images"
INPUT_WORDS = "images: N×H×W×3 bytes (uint8) in RGB, of any number and size; the normalisation is inside"
OUTPUT_WORDS: dict[tuple[Output, bool], str] = {
    ("labels", False): "labels: N×H×W class indices (uint8)",
    ("logits", False): "logits: N×C×H×W floats (float32), before the softmax",
    ("labels", True): "labels: N class indices (uint8)",
    ("logits", True): "logits: N×C floats (float32), before the softmax",
}


def export_model(
    run: Path, to: Path, output: Output, console: Console, licence: str | None = None, factory: str | None = None
) -> None:
    """Exports the model of a run folder, or of a model.safetensors, with a model card beside it.

    Raises:
        UserError: Something is missing, the network cannot be exported, or the file does not agree with it. Nothing is
            left behind, and a file that was there before stays.
    """
    kind = FORMATS.get(to.suffix.lower())
    if kind is None:
        raise UserError(f"{to}: unknown format. The name must end in {' or '.join(FORMATS)}.")
    if to.is_dir():
        raise UserError(f"{to}: is a folder. Name a file in it.")
    kind.require()
    model = load(run, device="cpu", factory=factory)
    say(
        console,
        f"Exporting {model.source} to {to}, then comparing it with PyTorch at {len(BATCHES)} sizes and timing both: "
        "about a minute",
    )
    described = {"input": INPUT_WORDS, "output": OUTPUT_WORDS[output, model.classifies]}
    lists = {"classes": list(model.classes), "colours": [list(colour) for colour in model.colours]}
    temporary = to.with_name(f".{to.stem}.{os.getpid()}{to.suffix}")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        kind.write(model.network, output, temporary, {"oneway": __version__, **described, **lists})
        opened = kind.open(temporary)
        agreement = compare(model.network, opened)
        refuse_difference(agreement)
        content = temporary.read_bytes()
        height, width = size = TIMED_SIZES[model.classifies]
        speeds = {kind.runtime: _rate(opened.result, size), "PyTorch": _rate(partial(_predict, model), size)}
        machine = hardware(torch.device("cpu"))
        where = f"Images of {height}×{width} pixels, one by one, on {machine}."
        facts = {
            **described,
            "classes": ", ".join(f"{index} {name}" for index, name in enumerate(model.classes)),
            "parameters": f"{sum(parameter.numel() for parameter in model.network.parameters()):,}",
            "agreement": agreement,
            "SHA-256": hashlib.sha256(content).hexdigest(),
            "exported by": f"oneway {__version__}",
            "licence": licence or NO_LICENCE,
        }
        text = model_card(to.name, facts, model, run if run.is_dir() else run.parent, where, speeds)
        sync(temporary)
        os.replace(temporary, to)
    except UserError as error:
        raise UserError(f"{to}: not written. {error}") from error
    except OSError as error:
        raise UserError(f"{to}: cannot be written ({error.strerror or error}).") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    beside = to.with_name(f"{to.name}.md")
    write_atomically(beside, text.encode())
    say(console, f"{agreement}.")
    rates = ", ".join(f"{runtime} {speed:.1f} images/s" for runtime, speed in speeds.items())
    say(console, f"{rates} ({height}×{width}, {machine})")
    say(console, f"Exported: {to} ({len(content) / 1e6:.1f} MB), model card: {beside}")


def _predict(model: Predictor, images: Tensor) -> Tensor:
    x = as_input(images)
    return upsample(model.network(x), pixels_of(x)).max(dim=1).indices


@torch.inference_mode()
def _rate(call: Call, size: tuple[int, int]) -> float:
    """Black images per second."""
    images = torch.zeros(1, *size, 3, dtype=torch.uint8)
    call(images)
    seconds = []
    for _ in range(TIMED_RUNS):
        began = time.perf_counter()
        call(images)
        seconds.append(time.perf_counter() - began)
    return 1 / statistics.median(seconds)
