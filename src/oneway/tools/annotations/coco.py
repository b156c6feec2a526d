"""COCO: one JSON file. Polygons; run lengths for what has holes, since polygons have none there, and where exact."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from oneway.tools.annotations.interface import Files, Picture, Scheme
from oneway.tools.annotations.regions import Region, runs

images = "images/default"
FILE = "annotations/instances_default.json"


def describe(picture: Picture, scheme: Scheme, folder: Path) -> tuple[Files, tuple[str, list[str]]]:
    """The image and its annotations as JSON, but for their numbers."""
    height, width = picture.size
    image = {"file_name": picture.name, "height": height, "width": width}
    entries = []
    for region in picture.regions:
        entry = {
            "category_id": scheme.number(region) + 1,
            "segmentation": _segmentation(region, picture.size, scheme.tolerance),
            "area": region.area,
            "bbox": region.box,
            "iscrowd": 0,
            "score": round(region.confidence, 4),
        }
        entries.append(json.dumps(entry)[1:])
    return {}, (json.dumps(image)[1:], entries)


def gather(parts: Sequence[tuple[str, list[str]]], scheme: Scheme) -> Files:
    """All in one file."""
    numbers = count(1)
    pictures: list[str] = []
    entries: list[str] = []
    for number, (image, regions) in enumerate(parts, start=1):
        pictures.append(f'{{"id": {number}, {image}')
        entries += [f'{{"id": {next(numbers)}, "image_id": {number}, {region}' for region in regions]
    categories = [json.dumps({"id": number, "name": name}) for number, name in enumerate(scheme.names, start=1)]
    lists: dict[str, list[str]] = {"licenses": [], "categories": categories, "images": pictures, "annotations": entries}
    body = ",\n".join(f'"{name}": [{", ".join(content)}]' for name, content in lists.items())
    return {FILE: f'{{"info": {{"description": "predicted by oneway"}},\n{body}}}\n'.encode()}


def _segmentation(region: Region, size: tuple[int, int], tolerance: float) -> Any:
    if tolerance and len(region.rings) == 1:
        return [region.rings[0].round(2).ravel().tolist()]
    down_columns = region.mask_in(size).ravel(order="F")
    return {"size": size, "counts": compress(runs(down_columns))}


def compress(counts: Iterable[int]) -> str:
    """COCO's text form of run lengths.

    A number becomes characters of five bits, lowest first, and a sixth says whether more follow; from the fourth
    number on it is the difference to the number two before.
    """
    known = list(counts)
    text: list[str] = []
    for index, length in enumerate(known):
        number = length - known[index - 2] if index > 2 else length
        while True:
            bits, number = number & 31, number >> 5
            done = number == (-1 if bits & 16 else 0)
            text.append(chr(48 + bits + (0 if done else 32)))
            if done:
                break
    return "".join(text)
