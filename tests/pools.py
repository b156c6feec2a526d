"""Small pools of images for tests: folders, and shards of the same."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console

from oneway.config import Data
from oneway.data.pool import Pool, find_pool, open_pool

QUIET = Console(quiet=True)
SIZES = [(40, 60), (64, 48), (33, 51)]


def photograph(number: int) -> Image.Image:
    """Smooth colours, of one of three sizes; others for each number."""
    height, width = SIZES[number % 3]
    cells = np.random.default_rng(number).integers(256, size=(5, 7, 3), dtype=np.uint8)
    return Image.fromarray(cells).resize((width, height), Image.Resampling.BICUBIC)


def write_images(folder: Path, count: int = 12, suffix: str = "jpg") -> Path:
    """A folder of photographs, in two subfolders."""
    for number in range(count):
        path = folder / f"{'ab'[number % 2]}/{number:03d}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        photograph(number).save(path, quality=92)
    return folder


def break_some(folder: Path, numbers: Iterable[int]) -> None:
    """Cuts off the end of some images."""
    for number in numbers:
        path = next(folder.rglob(f"{number:03d}.jpg"))
        path.write_bytes(path.read_bytes()[:200])


def pack(folder: Path, shards: Path, size: int = 5) -> Path:
    """Shards with the images of a folder, in order of name, as WebDataset has them."""
    shards.mkdir(parents=True, exist_ok=True)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    for first in range(0, len(names), size):
        with tarfile.open(shards / f"{first // size:05d}.tar", "w") as tar:
            for name in names[first : first + size]:
                tar.add(folder / name, name)
    return shards


def opened(named: Path | str, cache: Path, console: Console = QUIET, **settings: Any) -> Pool:
    """A pool as a run opens it."""
    config = Data(name="folder", unlabelled=str(named), cache=cache, **settings)
    assert config.unlabelled is not None
    return open_pool(find_pool(config.unlabelled), config, console)
