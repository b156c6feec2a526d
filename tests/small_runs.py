"""Runs that take a moment: as small as can be, but trained like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from rich.console import Console
from torch import Tensor

from first_version.tiny_network import tiny
from oneway.config import Config, Model, build, merge
from oneway.config.recipes import recipe
from oneway.runs import TrainedModel, save_model
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

TINY: dict[str, Any] = {
    "model": {"weights": None, "width": 0.125},
    "jitter": {"crop": (32, 48)},
    "train": {"batch_labelled": 2, "batch_unlabelled": 2, "device": "cpu"},
}
"""What makes runs of `reproduce` on photographs small."""

SMALL_FLAGS = (
    "--data.images 16 --data.size 32 64 --jitter.crop 32 64 --model.width 0.125 --labels 4 "
    "--train.batch-labelled 2 --train.batch-unlabelled 2 --train.iterations 4 --train.log-every 2"
).split()
"""The same on the command line, on the device that there is."""


def small_streets(**changes: object) -> Config:
    """The recipe for street scenes, made small, and changed."""
    return build(merge(merge(recipe("streets").model_dump(), SMALL), changes), source="test")


def train_two(out: Path) -> list[Path]:
    """The folders of a supervised and a semi-supervised run."""
    for method in METHODS:
        train(small_streets(method=method, seed=3), out / method, resume=False, console=QUIET)
    return [out / method for method in METHODS]


def assert_resumes(config: Config, folder: Path) -> dict[str, Tensor]:
    """Trains four iterations, then the last two again: every tensor and every line is the same. Returns the tensors."""
    train(config, folder, resume=False, console=QUIET)
    expected, metrics = _tensors(folder), (folder / "metrics.jsonl").read_text()
    assert all(json.loads(line).get("consistency", 1) > 0 for line in metrics.splitlines())
    for name in ("summary.json", "model.safetensors", "checkpoint/00000004.json", "checkpoint/00000004.safetensors"):
        (folder / name).unlink()
    train(config, folder, resume=True, console=QUIET)
    found = _tensors(folder)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert (folder / "metrics.jsonl").read_text() == metrics
    return expected


def _tensors(folder: Path) -> dict[str, Tensor]:
    """The kept model, and the last checkpoint with all networks and the optimiser."""
    last = sorted((folder / "checkpoint").glob("*.safetensors"))[-1]
    model = safetensors.torch.load_file(folder / "model.safetensors")
    return {f"model.{name}": tensor for name, tensor in model.items()} | safetensors.torch.load_file(last)


def save_tiny(path: Path, classes: tuple[str, ...], **about: Any) -> str:
    """A model whose network is exported in a moment, as a file; returns the factory to agree to."""
    factory = "first_version.tiny_network:tiny"
    torch.manual_seed(0)
    save_model(path, TrainedModel(tiny(len(classes)), classes, (), **about), Model(factory=factory))
    return factory


def stub(folder: Path, config: Config, value: float, iterations: int | None = None) -> None:
    """A run folder as far as a table reads it."""
    iterations = iterations or config.train.total_iterations(labelled=20)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config.to_yaml())
    write_json(folder / "environment.json", environment(torch.device("cpu")))
    summary = {"method": config.method, "variant": "1w-ct", "seed": config.seed, "labels": 20, "iterations": iterations}
    summary |= {"metric": "miou", "value": value, "per_class": {"all": value}, "absent": [], "confusion": [[1]]}
    write_json(folder / "summary.json", summary | {"validation_samples": 1, "seconds": 1, "peak_memory_mib": 1})
