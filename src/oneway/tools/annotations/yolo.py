"""YOLO for segmentation: a line of text for each region; where it has holes, the outline leads there and back again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from oneway.tools.annotations.interface import Files, Picture, Scheme
from oneway.tools.annotations.polygons import keyhole

images = "images/train"


def describe(picture: Picture, scheme: Scheme, folder: Path) -> tuple[Files, None]:
    """The file of an image: class and x, y, x, y, …, as shares of its width and height."""
    size = np.array(picture.size[::-1])
    lines = []
    for region in picture.regions:
        shares = (keyhole(region.rings) / size).reshape(-1)
        lines.append(f"{scheme.number(region)} {' '.join(f'{share:.6f}' for share in shares)}\n")
    return {f"labels/train/{picture.stem}.txt": "".join(lines).encode()}, None


def gather(parts: Sequence[None], scheme: Scheme) -> Files:
    """The names of the classes and where the images are."""
    about = {"path": ".", "train": images, "names": dict(enumerate(scheme.names))}
    return {"data.yaml": yaml.safe_dump(about, sort_keys=False, allow_unicode=True).encode()}
