"""Exports a model: writes a file, compares it with the network, and only then gives it its name."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from oneway import __version__
from oneway.common.errors import UserError
from oneway.common.words import listed, say
from oneway.data.image_style import MOST_BITS
from oneway.models.favoured import in_words
from oneway.models.reduced import Reduced
from oneway.ops.losses import pixels_of, upsample
from oneway.runs.atomic import sync, write_atomically
from oneway.runs.environment import hardware
from oneway.tools.evaluate import as_input
from oneway.tools.export.agreement import BATCHES, compare, refuse_difference
from oneway.tools.export.card import keep_edited, model_card
from oneway.tools.export.formats import FORMATS, About, Call, Format, Onnx, Opened, Pt2
from oneway.tools.export.graph import Output
from oneway.tools.export.int8 import Cost, Images, Int8, measure, quantise, read_images, refuse_loss
from oneway.tools.export_names import refuse_export_name
from oneway.tools.predict.loading import load
from oneway.tools.predict.predictor import Predictor

TIMED_SIZES = {False: (256, 512), True: (32, 32)}
"""Sizes of images that are timed, by whether the model classifies."""

_TRACER = threading.Lock()
"""PyTorch changes itself while it traces a network, and fails where two threads do it."""

LEAST_TURNS, MOST_TURNS = 3, 20
TIMED_SECONDS = 2.0
LOWER_BOUND = "Lower bounds, from the fastest of several calls: other work on that computer made them no faster."
NO_LICENCE = "not stated; fill it in, and mind the licence of the training images"
NOT_SCORED = " (probabilities are multiplied by that inside; the quality below was measured without it)"
INPUT_WORDS = "images: N×H×W×3 bytes (uint8), {}, of any number and size; the normalisation is inside"
OUTPUT_WORDS: dict[tuple[Output, bool], str] = {
    ("labels", False): "labels: N×H×W class indices (uint8)",
    ("logits", False): "logits: N×C×H×W floats (float32), before the softmax",
    ("labels", True): "labels: N class indices (uint8)",
    ("logits", True): "logits: N×C floats (float32), before the softmax",
}


def export_model(
    run: Path,
    to: Path,
    output: Output,
    console: Console,
    *,
    licence: str | None = None,
    factory: str | None = None,
    int8: Int8 | None = None,
    favour: Mapping[str, float] | None = None,
) -> None:
    """Export the model of a run folder, or of a model.safetensors, with a model card beside it.

    Raises:
        UserError: Something is missing, the network cannot be exported, the file does not agree with it, or loses too
            much in INT8. Nothing is left behind, and a file that was there before stays.
    """
    kind = _choose_format(to, int8)
    model = _load_model(run, factory, int8, favour)
    images = read_images(run, model, int8, console) if int8 else None
    doing = f"Exporting {model.source} to {to}, then comparing it with PyTorch at {len(BATCHES)} sizes and timing both"
    then = f", calibrating INT8 on {len(images.calibration)} images and validating both: minutes" if images else None
    say(console, doing + (then or ": about a minute"))
    about = _describe(model, output)
    height, width = (side * model.reduction for side in TIMED_SIZES[model.classifies])
    machine = hardware(torch.device("cpu"))
    where = f"Images of {height}×{width} pixels, one by one, on {machine}. {LOWER_BOUND}"
    with _placed(kind, to) as temporary:
        findings, calls = _write(kind, model.network, output, temporary, about, images, int8)
        contents = [file.read_bytes() for file in kind.files(temporary)]
        speeds = measure_speeds(calls, (height, width))
        named = {file.name: content for file, content in zip(kind.files(to), contents, strict=True)}
        facts = _list_facts(model, about, findings, named, licence)
        text = model_card(to.name, facts, model, run if run.is_dir() else run.parent, where, speeds)
    beside = to.with_name(f"{to.name}.md")
    kept = keep_edited(beside)
    write_atomically(beside, text.encode())
    for what, found in findings.items():
        say(console, f"{found}." if what == "agreement" else f"{what}: {found}.")
    rates = ", ".join(f"{runtime} {speed:.1f} images/s" for runtime, speed in speeds.items())
    say(console, f"{rates}, at least ({height}×{width}, {machine})")
    names = listed([to, *(file.name for file in kind.files(to) if file != to)])
    size_of_all = f"{sum(map(len, contents)) / 1e6:.1f} MB{' together' if len(contents) > 1 else ''}"
    say(console, f"Exported: {names} ({size_of_all}), model card: {beside}")
    if kept:
        say(console, f"The card that was there had been edited, and is kept: {kept}")


@contextmanager
def _placed(kind: Format, to: Path) -> Iterator[Path]:
    """Where to write; the files get their names once the block has ended well, and else nothing is left of them."""
    temporary = to.with_name(f".{to.stem}.{os.getpid()}{to.suffix.lower()}")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        for made, file in zip(kind.files(temporary), kind.files(to), strict=True):
            sync(made)
            os.replace(made, file)
    except UserError as error:
        raise UserError(f"{to}: not written. {error}") from error
    except OSError as error:
        raise UserError(f"{to}: cannot be written ({error.strerror or error}).") from error
    finally:
        kind.remove(temporary)


def _load_model(run: Path, factory: str | None, int8: Int8 | None, favour: Mapping[str, float] | None) -> Predictor:
    """The model on the CPU; one that sees images smaller than they are makes them smaller itself."""
    model = load(run, device="cpu", factory=factory, favour=favour)
    if model.reduction == 1:
        return model
    if int8:
        raise UserError(
            f"--int8: {model.source} sees images at 1/{model.reduction} of their size, and INT8 is not measured "
            "for that. Leave it out, or train with --data.reduction 1."
        )
    return replace(model, network=Reduced(model.network, model.reduction))


def _describe(model: Predictor, output: Output) -> About:
    """What a file says about itself; what is usual is left out."""
    bands, bits = model.image_style.bands, model.image_style.bits
    seen = "in RGB" if bands is None else f"bands {listed(bands)} of a file in this order, counted from 1"
    if bits != MOST_BITS:
        seen += f", of files of 16 bits the upper 8 of the lower {bits}"
    if model.reduction > 1:
        seen += f", made {model.reduction} times smaller inside"
    about: About = {
        "oneway": __version__,
        "input": INPUT_WORDS.format(seen),
        "output": OUTPUT_WORDS[output, model.classifies],
        "classes": model.classes,
        "colours": model.colours,
        "bits": bits,
    }
    about |= {} if bands is None else {"bands": bands}
    about |= {"favour": model.favour} if model.favour else {}
    return about | ({} if model.reduction == 1 else {"reduction": model.reduction})


def _list_facts(
    model: Predictor,
    about: About,
    findings: Mapping[str, object],
    contents: Mapping[str, bytes],
    licence: str | None,
) -> dict[str, object]:
    """What the card says about the files, which have these contents by name."""
    return {
        "input": about["input"],
        "output": about["output"],
        "classes": ", ".join(f"{index} {name}" for index, name in enumerate(model.classes)),
        **({"favoured classes": f"{in_words(model.favour)}{NOT_SCORED}"} if model.favour else {}),
        "parameters": f"{sum(parameter.numel() for parameter in model.network.parameters()):,}",
        **findings,
        **{f"SHA-256 of {name}": hashlib.sha256(content).hexdigest() for name, content in contents.items()},
        "exported by": f"oneway {__version__}",
        "licence": licence or NO_LICENCE,
    }


def _write(
    kind: Onnx | Pt2,
    network: nn.Module,
    output: Output,
    path: Path,
    about: About,
    images: Images | None,
    int8: Int8 | None,
) -> tuple[dict[str, object], dict[str, Call]]:
    """Write a file, and compare it with the network: what was found, and what can be timed."""
    with _TRACER:
        graph = kind.write(network, output, path, about)
    opened = kind.open(path)
    agreement = compare(network, opened)
    refuse_difference(agreement)
    findings: dict[str, object] = {"agreement": agreement}
    calls: dict[str, Call] = {kind.runtime: opened.result, "PyTorch": partial(predict_bytes, network)}
    if int8 and images and isinstance(kind, Onnx):
        small, cost = _replace_by_int8(kind, graph, path, about, opened, images, int8)
        findings |= {"INT8": cost, "INT8, agreement": compare(network, small)}
        calls = {f"{kind.runtime} INT8": small.result, **calls}
    return findings, calls


def _choose_format(to: Path, int8: Int8 | None) -> Onnx | Pt2:
    """Refuse what cannot be written, before anything is loaded."""
    refuse_export_name(to, int8 is not None)
    kind = FORMATS[to.suffix.lower()]
    for beside in kind.files(to):
        if beside.exists() and not to.exists():
            raise UserError(
                f"{beside}: is there already, and the weights of {to.name} would go there. Choose another name."
            )
    kind.require()
    return kind


def _replace_by_int8(
    kind: Onnx, graph: Any, path: Path, about: About, before: Opened, images: Images, asked: Int8
) -> tuple[Opened, Cost]:
    """Write the INT8 form of a graph in place of the graph, with what it costs; a UserError where that is too much."""
    smaller = quantise(graph, images.calibration)
    kind.remove(path)  # a file is never written over while it is open
    kind.save(smaller, path, about)
    after = kind.open(path)
    cost = measure(before, after, images, len(about["classes"]))
    refuse_loss(cost, asked.most_lost)
    kind.remove(path)
    kind.save(smaller, path, {**about, "int8": cost.facts()})
    return after, cost


def predict_bytes(network: nn.Module, images: Tensor) -> Tensor:
    """What a file gives, by PyTorch."""
    x = as_input(images)
    return upsample(network(x), pixels_of(x)).max(dim=1).indices


@torch.inference_mode()
def measure_speeds(calls: Mapping[str, Call], size: tuple[int, int]) -> dict[str, float]:
    """Black images per second of each, from its fastest call: what else a computer does only makes calls slower.

    They take turns, so that a busy moment is nobody's alone.
    """
    images = torch.zeros(1, *size, 3, dtype=torch.uint8)
    fastest = dict.fromkeys(calls, math.inf)
    began = time.perf_counter()
    for turn in range(1 + MOST_TURNS):  # of which the first is slower
        if turn > LEAST_TURNS and time.perf_counter() - began > TIMED_SECONDS:
            break
        for name, call in calls.items():
            start = time.perf_counter()
            call(images)
            fastest[name] = min(fastest[name], time.perf_counter() - start)
    return {name: 1 / seconds for name, seconds in fastest.items()}
