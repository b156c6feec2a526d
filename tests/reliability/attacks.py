"""Attacks, and what they are made of: a file, a link, a checkpoint or a run folder, in order but for one thing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from oneway.config.recipes import recipe
from oneway.data.dataset import Samples
from oneway.data.decode.masks import read_mask
from oneway.data.folder.description import Description
from oneway.data.splits import choose
from oneway.runs import checkpoint, open_run
from oneway.runs.checkpoint import seal_manifest
from oneway.runs.model_file import load_model
from reliability.damage import trained

Action = Callable[[Path], object]
"""Something that is done in a folder."""

NUMBERS = Description(classes=["a", "b"]).coding()
SAMPLES = Samples.stacked(("train/a.png",), np.zeros((1, 2, 2, 3), np.uint8), np.zeros((1, 2, 2), np.uint8))


@dataclass(frozen=True)
class Attack:
    """What is put into a folder, and how it is read there."""

    name: str
    prepare: Action
    read: Action


def file(name: str, content: bytes) -> Action:
    """Writes a file."""

    def prepare(here: Path) -> None:
        (here / name).write_bytes(content)

    return prepare


def link(name: str, target: Path) -> Action:
    """Puts a link in place of a file or a folder."""

    def prepare(here: Path) -> None:
        if (here / name).is_dir():
            for inside in (here / name).iterdir():
                inside.unlink()
            (here / name).rmdir()
        (here / name).unlink(missing_ok=True)
        (here / name).symlink_to(target)

    return prepare


def checkpoint_of(content: bytes, manifest: bytes | None = None) -> Action:
    """A checkpoint with this content for its tensors, and checksums that match."""
    words = {
        "format": checkpoint.FORMAT,
        "iteration": 20,
        "seconds": 1.0,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "configuration": {},
        "split": "",
    }

    def prepare(here: Path) -> None:
        (here / "checkpoint").mkdir()
        (here / "checkpoint" / "00000020.safetensors").write_bytes(content)
        (here / "checkpoint" / "00000020.json").write_bytes(manifest or seal_manifest(words))

    return prepare


def run_with(change: Action) -> Action:
    """A run folder, in order but for this."""

    def prepare(here: Path) -> None:
        (here / "checkpoint").mkdir()
        (here / "config.yaml").write_text(recipe("moons").to_yaml())
        change(here)

    return prepare


def load_checkpoint(here: Path) -> object:
    return checkpoint.load(here / "checkpoint" / "00000020.json", trained(1))


def load_a_model(here: Path) -> object:
    return load_model(here / "m.safetensors", torch.device("cpu"))


def read_a_mask(here: Path) -> object:
    return read_mask(here / "a.png", NUMBERS)


def read_a_list(here: Path) -> object:
    return choose(SAMPLES, str(here / "l.txt"), 0)


def read_run(here: Path) -> object:
    run = open_run(here)
    return run.summary, run.metrics(), run.split
