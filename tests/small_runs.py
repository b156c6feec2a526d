"""Runs that take a moment: as small as can be, but trained like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from oneway.config import Config, build, merge
from oneway.config.recipes import recipe
from oneway.tools.train import train

METHODS: tuple[str, str] = ("supervised", "simple-phtps")
QUIET = Console(quiet=True)

SMALL: dict[str, Any] = {
    "labels": "4",
    "data": {"size": (32, 64), "images": 16},
    "jitter": {"crop": (32, 64)},
    "model": {"width": 0.125},
    "train": {"iterations": 4, "batch_labelled": 2, "batch_unlabelled": 2, "log_every": 2, "device": "cpu"},
}
"""Who does not ask for other scenes gets those that the process has rendered already."""


def small_streets(**changes: object) -> Config:
    """The recipe for street scenes, made small, and changed."""
    return build(merge(merge(recipe("streets").model_dump(), SMALL), changes), source="test")


def train_two(out: Path) -> list[Path]:
    """The folders of a supervised and a semi-supervised run."""
    for method in METHODS:
        train(small_streets(method=method, seed=3), out / method, resume=False, console=QUIET)
    return [out / method for method in METHODS]
