"""Labelme: a JSON file for each image, beside it or in a folder of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel

from oneway.data.dataset import class_name
from oneway.data.decode.images import SUFFIXES
from oneway.data.decode.json_files import read_model
from oneway.data.decode.regions import Region, Regions, Shape
from oneway.data.decode.shapes import bitmap, ellipse, polygon, rectangle
from oneway.data.folder.formats.interface import Annotations, AnnotationSource, begins_with, without_area
from oneway.data.folder.walk import Problem, choose_folder, entries_of, require_inside, stem_below, walk

FOLDERS = ("labels", "annotations", "json", "jsons", "labelme", "label", "annotation", "masks")
SIGN = re.compile(rb'"shapes"\s*:')  # which comes before the image
IGNORED = "__ignore__"
MOST_BYTES = 2**28  # of one that holds the image as well
LOOKED_AT = 3  # files


class _Shape(BaseModel):
    label: Annotated[str, AfterValidator(class_name)]
    points: list[tuple[float, float]]
    shape_type: str | None = "polygon"
    mask: Any = None


class _File(BaseModel):
    shapes: list[_Shape]
    imagePath: str | None = None  # noqa: N815
    imageHeight: int | None = None  # noqa: N815
    imageWidth: int | None = None  # noqa: N815


def find(root: Path, folder: str) -> str | None:
    """The folder itself, or one in it, that holds such files."""
    inner = (choose_folder(root, folder, (name,)) for name in FOLDERS)
    images = choose_folder(root, folder, ("images", "image", "jpegimages"))
    for place in dict.fromkeys([folder, *filter(None, (images, *inner))]):
        names = [entry.name for entry in entries_of(root / place) if entry.name.lower().endswith(".json")]
        if any(begins_with(SIGN, require_inside(root / place / name, root)) for name in names[:LOOKED_AT]):
            return place
    return None


def read(source: AnnotationSource) -> Annotations:
    """The names of all classes, and which images have files; shapes are read when they are painted."""
    files: dict[Path, Path] = {}
    empty, names, left_out = set[Path](), set[str](), Counter[str]()
    for path in walk(source.labels, source.root, []):
        if path.suffix.lower() != ".json" or not begins_with(SIGN, path):
            continue
        found = read_model(path, _File, MOST_BYTES)
        image = source.by_stem.get(stem_below(path, source.labels)) or _named(source, found.imagePath)
        if image is None or image in files:
            why = f"{files[image]} is for the same image" if image else "no image has its name, nor the one it names"
            source.problems.append(Problem(path, f"left out: {why}."))
            continue
        files[image] = path
        regions = [shape for shape in found.shapes if _shape(shape) is not None]
        left_out.update(shape.shape_type or "" for shape in found.shapes if _shape(shape) is None)
        names |= {shape.label for shape in regions if shape.label != IGNORED}
        if not regions:
            empty.add(image)
    remarks = without_area(left_out)
    return Annotations(tuple(sorted(names)), files, frozenset(empty), partial(_regions, files), False, remarks)


def _named(source: AnnotationSource, entry: str | None) -> Path | None:
    name = PurePosixPath((entry or "").replace("\\", "/")).name
    return source.named(name) if Path(name).suffix.lower() in SUFFIXES else None


def _regions(files: Mapping[Path, Path], image: Path) -> Regions:
    found = read_model(files[image], _File, MOST_BYTES)
    regions = tuple(
        Region(f"shapes[{index}]", None if shape.label == IGNORED else shape.label, drawn)
        for index, shape in enumerate(found.shapes)
        if (drawn := _shape(shape)) is not None
    )
    height, width = found.imageHeight, found.imageWidth
    return Regions(files[image], regions, (height, width) if height and width else None)


def _shape(shape: _Shape) -> Shape | None:
    """What was drawn; None where it has no area."""
    match shape.shape_type or "polygon", shape.points:
        case "polygon" | "oriented_rectangle", points:
            return partial(polygon, points)
        case "rectangle", [one, other]:
            return rectangle(one, other)
        case "circle", [(x, y), (edge_x, edge_y)]:
            radius = ((edge_x - x) ** 2 + (edge_y - y) ** 2) ** 0.5
            return ellipse(x, y, radius, radius)
        case "mask", [(left, top), *_]:
            return partial(bitmap, shape.mask, left, top)
    return None
