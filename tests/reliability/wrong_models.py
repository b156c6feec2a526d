"""Models and initial weights that are whole and would compute nonsense, or that say nothing of a checksum."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import safetensors.torch
import torch
from PIL import Image
from torch import Tensor

from forks import start
from oneway.common.errors import UserError
from oneway.runs.model_file import digest, load_model
from oneway.runs.weights import read
from reliability.harness import STREETS, undisturbed

SECONDS = 20
NAN, INFINITY = float("nan"), float("inf")
FIRST = "encoder.net.conv1.weight"
VARIANCES = "encoder.net.layer3.0.bn2.running_var"

VALUES: dict[str, tuple[str, float]] = {
    "a weight that is NaN": (FIRST, NAN),
    "a bias that is infinite": ("head.2.bias", INFINITY),
    "a mean that is -infinite": ("encoder.net.bn1.running_mean", -INFINITY),
    "a negative variance": (VARIANCES, -1e-3),
    "a deviation of zero": ("deviation", 0.0),
}
"""One value of one tensor."""

FORMATS: tuple[object, ...] = (0, -5, 1, 3, 2.0, "2", "3", True, None, [2], 10**40)

VERBS: dict[str, Callable[[str], list[str]]] = {
    "predict": lambda run: ["predict", run, "image.png", "--out", "out"],
    "eval": lambda run: ["eval", run, "--json"],
    "explore": lambda run: ["explore", run],
    "suggest": lambda run: ["suggest", run],
    "weights": lambda run: [*STREETS[:-1], "other", "--model.weights", run],
    "teacher": lambda run: [*STREETS[:-1], "other", "--teacher", run],
}
"""Commands that load the model of a run."""


def altered(folder: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], object], seal: bool = True) -> Path:
    """A run whose model has other tensors or other words, with a checksum that matches, unless `seal` is false."""
    run = Path(shutil.copytree(undisturbed(), folder / "run"))
    path = run / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    with safetensors.safe_open(path, "pt") as file:
        words = json.loads(file.metadata()["oneway"])
    change(tensors, words)
    if seal:
        words.pop("sha256", None)
        words["sha256"] = digest(words, tensors)
    path.write_bytes(safetensors.torch.save(tensors, {"oneway": json.dumps(words)}))
    return run


def value_is_refused(folder: Path, what: str, verb: str) -> bool:
    """A command ends with status 1 and the name of the tensor, and writes nothing."""
    name, value = VALUES[what]
    altered(folder, lambda tensors, words: tensors[name].view(-1)[-1:].fill_(value))
    Image.fromarray(np.zeros((32, 64, 3), np.uint8)).save(folder / "image.png")
    job = start(folder, command=VERBS[verb]("run"))
    limit = Timer(SECONDS, os.kill, (job.process, signal.SIGKILL))  # of a page that is served all the same
    limit.start()
    status = job.wait()
    limit.cancel()
    written = [path for path in ("out", "other") if (folder / path).exists()]
    return status == 1 and f"model.safetensors: its {name} " in job.error and not written


def formats_are_refused(folder: Path) -> list[object]:
    """Those of FORMATS that a reader accepts, with altered weights and whatever checksum."""
    accepted: list[object] = []
    for number, found in enumerate(FORMATS):
        for sealed in (False, True):

            def change(tensors: dict[str, Tensor], words: dict[str, Any], found: object = found) -> None:
                tensors[FIRST] *= -1
                words["format"] = found
                if found is None:
                    del words["format"]

            path = altered(folder / f"{number}-{sealed}", change, sealed) / "model.safetensors"
            for load in (lambda path: load_model(path, torch.device("cpu")), lambda path: read(str(path.parent))):
                with suppress(UserError):
                    load(path)
                    accepted.append(found)
    return accepted
