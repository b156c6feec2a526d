"""Data sets, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from oneway.config import Data
from oneway.data import streets
from oneway.data.dataset import IGNORE, Dataset, Images
from oneway.methods import SplitName

__all__ = ["IGNORE", "READERS", "Dataset", "Images", "load"]

STREETS_VALIDATION_IMAGES = 100


@lru_cache(maxsize=2)  # a comparison reads the same scenes for each of its runs, and for its report
def _render_streets(size: tuple[int, int], training_images: int, split: SplitName) -> Images:
    series, count = {"train": (0, training_images), "val": (1, STREETS_VALIDATION_IMAGES)}[split]
    pixels, labels = zip(*(streets.render(series, index, *size) for index in range(count)), strict=True)
    return Images(tuple(f"{split}-{index:05d}" for index in range(count)), np.stack(pixels), np.stack(labels))


def _streets(config: Data) -> Dataset:
    return Dataset(streets.CLASSES, streets.COLOURS, partial(_render_streets, config.size, config.images))


READERS: dict[str, Callable[[Data], Dataset]] = {"streets": _streets}


def load(config: Data) -> Dataset:
    """The data set a configuration names."""
    return READERS[config.name](config)
