"""Data sets of a handful of small images, in the layouts of their recipes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from data.folders import pairs, write
from oneway.data import streets
from oneway.tools.train import train
from small_runs import QUIET, small_streets


def save(path: Path, seed: int, *, mask: bool) -> Path:
    """Patches of two classes, or an image of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size = (40, 48) if mask else (40, 48, 3)
    Image.fromarray(np.random.default_rng(seed).integers(2 if mask else 256, size=size, dtype=np.uint8)).save(path)
    return path


def folder(root: Path) -> Path:
    """Four images to train on, and one to validate on."""
    pairs(root / "train")
    pairs(root / "val", 1)
    return root


def scenes(root: Path, learning: int, validating: int) -> Path:
    """Rendered streets of 32×64 pixels in a folder as a user would have it: some to learn from, the rest validate."""
    for number in range(learning + validating):
        part = root / ("train" if number < learning else "val")
        for kind, pixels in zip(("images", "masks"), streets.render(7, number, 32, 64), strict=True):
            (part / kind).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(part / kind / f"{number:02d}.png")
    return root


def camvid(root: Path) -> Path:
    """Two frames to train on, and one to validate on."""
    for seed, name in enumerate(("train/a", "train/b", "val/c")):
        save(root / f"{name}.png", seed, mask=False)
        save(root / f"{name.replace('/', 'annot/')}.png", seed, mask=True)
    return root


def cityscapes(root: Path) -> Path:
    """The same, and an image that has coarse labels."""
    for seed, (split, kind) in enumerate(
        (("train", "gtFine"), ("train", "gtFine"), ("val", "gtFine"), ("train_extra", "gtCoarse"))
    ):
        save(root / f"leftImg8bit/{split}/ulm/{seed}_leftImg8bit.png", seed, mask=False)
        save(root / f"{kind}/{split}/ulm/{seed}_{kind}_labelIds.png", seed, mask=True)
    return root


def trained_on_stripes(place: Path, picture: Callable[[int], np.ndarray], suffix: str, line: str) -> Path:
    """Five pictures of 32×64 pixels with masks of stripes in `data`, described by a line more; and a `run` on them."""
    stripes = (np.add.outer(np.arange(32), np.arange(64)) // 12 % 2).astype(np.uint8)
    for kind in ("images", "masks"):
        (place / "data" / kind).mkdir(parents=True)
    for index in range(5):
        Image.fromarray(picture(index)).save(place / "data" / "images" / f"{index}.{suffix}")
        Image.fromarray(stripes).save(place / "data" / "masks" / f"{index}.png")
    write(place / "data" / "dataset.yaml", f"classes: [a, b]\n{line}\n")
    data = {"name": "folder", "path": place / "data", "cache": place / "cache"}
    train(small_streets(recipe="folder", labels="all", data=data), place / "run", resume=False, console=QUIET)
    return place
