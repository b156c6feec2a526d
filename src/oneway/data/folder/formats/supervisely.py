"""Supervisely: `meta.json` names the classes; data sets have images in `img` and a JSON file for each in `ann`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel

from oneway.data.dataset import class_name
from oneway.data.decode.json_files import read_model
from oneway.data.decode.regions import Region, Regions, Shape
from oneway.data.decode.shapes import bitmap, polygon, rectangle
from oneway.data.folder.description import DatasetPart, Description
from oneway.data.folder.formats.interface import Annotations, AnnotationSource, without_area
from oneway.data.folder.names import TRAIN, VAL
from oneway.data.folder.walk import entries_of, require_inside

META = "meta.json"
MOST_BYTES = 2**27


class _Class(BaseModel):
    title: Annotated[str, AfterValidator(class_name)]


class _Meta(BaseModel):
    classes: list[_Class]


class _Object(BaseModel):
    classTitle: Annotated[str, AfterValidator(class_name)]  # noqa: N815
    geometryType: str  # noqa: N815
    points: dict[str, Any] | None = None
    bitmap: dict[str, Any] | None = None


class _Size(BaseModel):
    height: int
    width: int


class _File(BaseModel):
    size: _Size | None = None
    objects: list[_Object]


def recognise(root: Path) -> Description | None:
    """The data sets of a project: those called so train and validate; else all train."""
    if not (root / META).is_file():
        return None
    folders = (entry.name for entry in entries_of(root))
    sets = [name for name in folders if (root / name / "img").is_dir() and (root / name / "ann").is_dir()]
    if (root / "img").is_dir() and (root / "ann").is_dir():
        return Description(train=DatasetPart(images="img", supervisely="ann"))
    if not sets:
        return None
    train, val = (next((name for name in sets if name.lower() in names), None) for names in (TRAIN, VAL))
    if train is None:
        return Description(train=DatasetPart(images=f"{sets[0]}/img" if len(sets) == 1 else ".", supervisely="."))
    parts = [DatasetPart(images=f"{name}/img", supervisely=f"{name}/ann") if name else None for name in (train, val)]
    rest = tuple(f"{name}/img" for name in sets if name not in (train, val))
    return Description(train=parts[0], val=parts[1], unlabelled=rest)


def read(source: AnnotationSource) -> Annotations:
    """Which images have files, and which of these hold nothing."""
    meta = read_model(require_inside(source.root / META, source.root), _Meta, MOST_BYTES)
    names = tuple(entry.title for entry in meta.classes)
    files, empty, left_out = dict[Path, Path](), set[Path](), Counter[str]()
    for image in source.images:
        path = image.parent.parent / "ann" / f"{image.name}.json"
        if image.parent.name == "img" and path.is_file():
            files[image] = require_inside(path, source.root)
            objects = read_model(path, _File, MOST_BYTES).objects
            left_out.update(one.geometryType for one in objects if _shape(one) is None)
            if not any(_shape(one) is not None for one in objects):
                empty.add(image)
    return Annotations(names, files, frozenset(empty), partial(_regions, files), remarks=without_area(left_out))


def _regions(files: Mapping[Path, Path], image: Path) -> Regions:
    found = read_model(files[image], _File, MOST_BYTES)
    regions = tuple(
        Region(f"objects[{index}]", one.classTitle, shape)
        for index, one in enumerate(found.objects)
        if (shape := _shape(one)) is not None
    )
    return Regions(files[image], regions, (found.size.height, found.size.width) if found.size else None)


def _shape(found: _Object) -> Shape | None:
    """What was drawn; None where it has no area."""
    points, picture = found.points or {}, found.bitmap or {}
    match found.geometryType, points.get("exterior"):
        case "polygon", exterior:
            return partial(polygon, exterior, holes=tuple(points.get("interior") or ()))
        case "rectangle", [one, other]:
            return rectangle(one, other)
        case "bitmap", _:
            left, top = (*(picture.get("origin") or ()), None, None)[:2]
            return partial(bitmap, picture.get("data"), left, top, packed=True)
    return None
