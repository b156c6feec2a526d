"""Data sets, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from oneway.config import Data
from oneway.data import cifar10, moons, streets
from oneway.data.dataset import IGNORE, Dataset, Samples, Task
from oneway.methods import SplitName

__all__ = ["IGNORE", "READERS", "Dataset", "Samples", "Task", "load"]

STREETS_VALIDATION_IMAGES = 100


@lru_cache(maxsize=2)  # a comparison reads the same scenes for each of its runs, and for its report
def _render_streets(size: tuple[int, int], training_images: int, split: SplitName) -> Samples:
    series, count = {"train": (0, training_images), "val": (1, STREETS_VALIDATION_IMAGES)}[split]
    images, labels = zip(*(streets.render(series, index, *size) for index in range(count)), strict=True)
    return Samples(_names(split, count), np.stack(images), np.stack(labels))


def _read_cifar10(path: Path | None, split: SplitName) -> Samples:
    images, labels = cifar10.read(path, split)
    return Samples(_names(split, len(images)), images, labels)


def _draw_moons(seed: int, split: SplitName) -> Samples:
    points, labels = moons.points(seed)
    part = slice(moons.TRAINING_POINTS) if split == "train" else slice(moons.TRAINING_POINTS, None)
    return Samples(_names(split, len(labels[part])), points[part], labels[part])


def _names(split: SplitName, count: int) -> tuple[str, ...]:
    return tuple(f"{split}-{index:05d}" for index in range(count))


READERS: dict[str, Callable[[Data], Dataset]] = {
    "streets": lambda config: Dataset(
        "segmentation", streets.CLASSES, streets.COLOURS, partial(_render_streets, config.size, config.images)
    ),
    "cifar10": lambda config: Dataset("classification", cifar10.CLASSES, (), partial(_read_cifar10, config.path)),
    "moons": lambda config: Dataset("classification", moons.CLASSES, moons.COLOURS, partial(_draw_moons, config.seed)),
}


def load(config: Data) -> Dataset:
    """The data set a configuration names."""
    return READERS[config.name](config)
