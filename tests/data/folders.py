"""One small scene in folders of every layout, with masks of every kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.encoders import compress
from oneway.common.errors import UserError
from oneway.data.folder import list_folder
from oneway.data.pictures import mark

SCENE = np.zeros((6, 8), np.uint8)
SCENE[1:4, 2:7] = 1
SCENE[4:, :3] = 2
PALETTE = ((0, 0, 0), (128, 64, 128), (0, 0, 142))


def photo(path: Path, value: int = 0, size: tuple[int, int] = SCENE.shape) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size[::-1], (value, 0, 0)).save(path)
    return path


def mask(path: Path, values: np.ndarray = SCENE, kind: str = "L") -> Path:
    """A mask of numbers, in a palette, or in the colours of that palette."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(values, np.uint8))
    if kind == "P":
        image = image.convert("P")
        image.putpalette([*np.ravel(PALETTE).tolist(), *[9] * (768 - 9)])
    elif kind == "RGB":
        image = Image.fromarray(np.array(PALETTE, np.uint8)[values])
    image.save(path)
    return path


def prediction(path: Path, values: np.ndarray = SCENE) -> Path:
    """A mask as `oneway predict` writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values, np.uint8)).save(path, pnginfo=mark("predict"))
    return path


def pairs(root: Path, count: int = 4, values: np.ndarray = SCENE, kind: str = "L") -> Path:
    """`images/` and `masks/` with as many pairs."""
    for index in range(count):
        photo(root / "images" / f"{index}.jpg", index)
        mask(root / "masks" / f"{index}.png", values, kind)
    return root


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def coco(path: Path, names: list[str], height: int = 6, width: int = 8) -> Path:
    """The scene as a box and as compressed run lengths, in each of the images."""
    flat = np.concatenate([[0], (SCENE == 2).T.ravel()])
    changes = np.flatnonzero(np.diff(flat))
    counts = np.diff(np.concatenate([[0], changes, [SCENE.size]])).tolist()
    shapes = [[[2, 1, 7, 1, 7, 4, 2, 4]], {"counts": compress(counts), "size": [height, width]}]
    tree = {
        "images": [
            {"id": index, "file_name": name, "height": height, "width": width} for index, name in enumerate(names)
        ],
        "annotations": [
            {"image_id": index, "category_id": category + 1, "segmentation": shape}
            for index in range(len(names))
            for category, shape in enumerate(shapes)
        ],
        "categories": [{"id": 1, "name": "road"}, {"id": 2, "name": "car"}],
    }
    return write(path, json.dumps(tree))


def listing(root: Path, unlabelled: Path | None = None, holdout: float = 0.25, seed: int = 0):
    return list_folder(root, unlabelled, holdout, seed)


def refusal(root: Path, unlabelled: Path | None = None) -> str:
    with pytest.raises(UserError) as error:
        listing(root, unlabelled)
    return str(error.value)


def names(items) -> list[str]:
    return [item.name for item in items]


def labelled(items) -> list[str]:
    return [item.name for item in items if item.mask]
