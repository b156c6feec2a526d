"""Runs that take a moment: as small as can be, but trained like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from oneway.config import Config, build, merge
from oneway.config.recipes import recipe
from oneway.runs.atomic import write_json
from oneway.runs.environment import environment
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


def stub(folder: Path, config: Config, value: float, iterations: int = 4000) -> None:
    """A run folder as far as a table reads it."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config.to_yaml())
    write_json(folder / "environment.json", environment(torch.device("cpu")))
    summary = {"method": config.method, "variant": "1w-ct", "seed": config.seed, "labels": 20, "iterations": iterations}
    summary |= {"metric": "miou", "value": value, "per_class": {"all": value}, "absent": [], "confusion": [[1]]}
    write_json(folder / "summary.json", summary | {"validation_samples": 1, "seconds": 1, "peak_memory_mib": 1})
