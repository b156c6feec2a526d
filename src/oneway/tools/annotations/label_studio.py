"""Label Studio: tasks with predictions, in percent of the image; and the labelling interface they belong to.

Polygons, to whose holes the outline leads and back again; or strokes of a brush, which are exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np

from oneway.tools.annotations.interface import Files, Picture, Scheme
from oneway.tools.annotations.polygons import keyhole
from oneway.tools.annotations.regions import Mask, Region, runs

images = "images"
FILE, INTERFACE = "tasks.json", "labelling-interface.xml"
BRUSH_BITS = (3, 4, 8, 16)
"""How long a length may be in a brush stroke."""


def describe(picture: Picture, scheme: Scheme, folder: Path) -> tuple[Files, str]:
    """The task of an image, as JSON."""
    height, width = picture.size
    results = [
        {
            "id": f"region{number}",
            "from_name": "label",
            "to_name": "image",
            "original_width": width,
            "original_height": height,
            "image_rotation": 0,
            **_result(region, picture.size, scheme),
            "score": round(region.confidence, 4),
        }
        for number, region in enumerate(picture.regions)
    ]
    # Local files are served by their path below the parent of the folder that is connected as storage.
    place = quote(f"{picture.folder.name}/{picture.name}", errors="surrogateescape")
    prediction = {"model_version": "oneway", "score": round(picture.confidence, 4), "result": results}
    return {}, json.dumps({"data": {"image": f"/data/local-files/?d={place}"}, "predictions": [prediction]})


def gather(parts: Sequence[str], scheme: Scheme) -> Files:
    """The tasks in one file, and the labelling interface."""
    kind = "PolygonLabels" if scheme.tolerance else "BrushLabels"
    labels = "".join(
        f"    <Label value={quoteattr(scheme.classes[index])} background={quoteattr(scheme.hex_colour(index))}/>\n"
        for index in scheme.wanted
    )
    interface = (
        '<View>\n  <Image name="image" value="$image" zoom="true"/>\n'
        f'  <{kind} name="label" toName="image">\n{labels}  </{kind}>\n</View>\n'
    )
    tasks = ",\n".join(parts)
    return {FILE: f"[{tasks}]\n".encode(), INTERFACE: interface.encode()}


def _result(region: Region, size: tuple[int, int], scheme: Scheme) -> dict[str, Any]:
    name = scheme.classes[region.label]
    if scheme.tolerance:
        percent = keyhole(region.rings) * (100 / np.array([size[1], size[0]]))
        value: dict[str, Any] = {"points": percent.round(4).tolist(), "closed": True, "polygonlabels": [name]}
        return {"type": "polygonlabels", "value": value}
    strokes = _brush(region.mask_in(size))
    return {"type": "brushlabels", "value": {"format": "rle", "rle": strokes, "brushlabels": [name]}}


def _brush(mask: Mask) -> list[int]:
    """Bytes of a brush stroke in Label Studio: the runs of an H×W×4 picture, 255 inside, behind a short header."""
    header = f"{4 * mask.size:032b}{8 - 1:05b}" + "".join(f"{bits - 1:04b}" for bits in BRUSH_BITS)
    text = header + "".join(_brush_runs(runs(mask.reshape(-1))))
    text += "0" * (-len(text) % 8)
    return list(int(text, 2).to_bytes(len(text) // 8, "big"))


def _brush_runs(counts: list[int]) -> Iterator[str]:
    for index, count in enumerate(counts):
        rest, value = 4 * count, 255 * (index % 2)
        while rest:
            part = min(rest, 2 ** BRUSH_BITS[-1])
            size = next(size for size, bits in enumerate(BRUSH_BITS) if part <= 2**bits)
            yield f"1{size:02b}{part - 1:0{BRUSH_BITS[size]}b}{value:08b}"
            rest -= part
