"""Data sets, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from oneway.config import Data
from oneway.data import streets
from oneway.data.dataset import IGNORE, Dataset, Images

__all__ = ["IGNORE", "READERS", "Dataset", "Images", "load"]

STREETS_VALIDATION_IMAGES = 100


def _streets(config: Data) -> Dataset:
    def render(series: str, seed: int, count: int) -> Images:
        scenes = [streets.render(seed, index, *config.size) for index in range(count)]
        pixels, labels = zip(*scenes, strict=True)
        return Images(tuple(f"{series}-{index:05d}" for index in range(count)), np.stack(pixels), np.stack(labels))

    return Dataset(
        streets.CLASSES,
        streets.COLOURS,
        train=render("train", 0, config.images),
        val=render("val", 1, STREETS_VALIDATION_IMAGES),
    )


READERS: dict[str, Callable[[Data], Dataset]] = {"streets": _streets}


def load(config: Data) -> Dataset:
    """The data set a configuration names."""
    return READERS[config.name](config)
