"""labelme: a JSON file for each image. Polygons; masks for what has holes, since polygons have none there."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from oneway.data.pictures import encoded
from oneway.tools.annotations.interface import Files, Picture, Scheme
from oneway.tools.annotations.regions import Region

images = ""  # beside the files about them
VERSION = "5.4.1"  # the first with masks and descriptions that later ones read too


def describe(picture: Picture, scheme: Scheme, folder: Path) -> tuple[Files, None]:
    """The file of an image."""
    height, width = picture.size
    name = f"{picture.stem}.json"
    content: dict[str, Any] = {
        "version": VERSION,
        "flags": {},
        "shapes": [_shape(region, scheme) for region in picture.regions],
        "imagePath": Path(os.path.relpath(picture.path, (folder / name).parent)).as_posix(),
        "imageData": None,
        "imageHeight": height,
        "imageWidth": width,
    }
    return {name: json.dumps(content).encode() + b"\n"}, None


def gather(parts: Sequence[None], scheme: Scheme) -> Files:
    """The names of the classes, for `labelme --labels`."""
    return {"labels.txt": "".join(f"{name}\n" for name in scheme.names).encode()}


def _shape(region: Region, scheme: Scheme) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "label": scheme.classes[region.label],
        "group_id": None,
        "description": f"confidence {region.confidence:.2f}",
        "flags": {},
    }
    if scheme.tolerance and len(region.rings) == 1:
        return {**shape, "shape_type": "polygon", "points": region.rings[0].round(2).tolist(), "mask": None}
    left, top, width, height = region.box
    picture = encoded(Image.fromarray(region.mask()), "PNG")
    corners = [[left, top], [left + width - 1, top + height - 1]]
    mask = base64.b64encode(picture).decode("ascii")
    return {**shape, "shape_type": "mask", "points": corners, "mask": mask}
