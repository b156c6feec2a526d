"""A small data set of photographs, read through the cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from rich.console import Console

from oneway.common.errors import UserError
from oneway.config import Data
from oneway.data import list_files, load
from oneway.data.cache import Cache
from oneway.data.dataset import Samples

CLASSES = ["ground", "road", "car"]
SIZES = [(20, 30), (33, 17), (24, 24)]
LABELLED = ["a.png", "b.jpg", "d.png"]
UNLABELLED = ["c.png", "e.jpg"]
DESCRIPTION = {
    "classes": CLASSES,
    "train": {"images": "train/images", "masks": "train/masks"},
    "val": {"images": "val/images", "masks": "val/masks"},
}


def photograph(path: Path, seed: int) -> None:
    """An image of one of three sizes, different for each seed."""
    height, width = SIZES[seed % 3]
    Image.fromarray(np.random.default_rng(seed).integers(256, size=(height, width, 3), dtype=np.uint8)).save(path)


def paint(path: Path, seed: int) -> None:
    """A palette mask of the same size, with every class in it."""
    labels = np.random.default_rng(seed).integers(3, size=SIZES[seed % 3], dtype=np.uint8)
    mask = Image.fromarray(labels).convert("P")
    mask.putpalette([0, 0, 0, 255, 0, 0, 0, 0, 255])
    mask.save(path)


def write_set(folder: Path) -> Path:
    """Five training images, three with masks, and two to validate on."""
    for split in ("train", "val"):
        for kind in ("images", "masks"):
            (folder / split / kind).mkdir(parents=True)
    for seed, name in enumerate(sorted(LABELLED + UNLABELLED)):
        photograph(folder / "train/images" / name, seed)
        if name in LABELLED:
            paint((folder / "train/masks" / name).with_suffix(".png"), seed)
    for seed, name in enumerate(("y.png", "z.png"), start=7):
        photograph(folder / "val/images" / name, seed)
        paint(folder / "val/masks" / name, seed)
    (folder / "dataset.yaml").write_text(yaml.safe_dump(DESCRIPTION))
    return folder


def settings(root: Path, **changes: object) -> Data:
    values = {"name": "folder", "path": root, "cache": root.parent / "cache"}
    return Data.model_validate(values | changes)


def train(root: Path, **changes: object) -> Samples:
    return load(settings(root, **changes)).read("train")


def cache_folder(root: Path, **changes: object) -> Path:
    config = settings(root, **changes)
    return Cache(list_files(config), config, Console(quiet=True)).folder("train").parent


def refusal(root: Path, **changes: object) -> str:
    with pytest.raises(UserError) as error:
        train(root, **changes)
    return str(error.value)


def same(one: Samples, other: Samples) -> bool:
    return (
        one.names == other.names
        and one.labelled == other.labelled
        and np.array_equal(one.sizes, other.sizes)
        and np.array_equal(one.pixels[:], other.pixels[:])
        and np.array_equal(one.labels[:], other.labels[:])
    )
