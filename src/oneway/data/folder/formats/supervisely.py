"""Supervisely: `meta.json` names the classes; data sets have images in `img` and a JSON file for each in `ann`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from oneway.common.errors import UserError
from oneway.data.dataset import class_name
from oneway.data.decode.coco import read_json
from oneway.data.decode.regions import Region, Regions, Shape
from oneway.data.decode.shapes import Bitmap, Polygon, rectangle
from oneway.data.folder.description import Description, Part
from oneway.data.folder.formats.interface import Annotations, Source, without_area
from oneway.data.folder.walk import entries_of, require_inside

TITLE = "Supervisely"
META = "meta.json"
MOST_BYTES = 2**27
TRAIN, VAL = ("train", "training"), ("val", "valid", "validation")


def recognise(root: Path) -> Description | None:
    """The data sets of a project: those called so train and validate; else all train."""
    if not (root / META).is_file():
        return None
    folders = (entry.name for entry in entries_of(root))
    sets = [name for name in folders if (root / name / "img").is_dir() and (root / name / "ann").is_dir()]
    if (root / "img").is_dir() and (root / "ann").is_dir():
        return Description(train=Part(images="img", supervisely="ann"))
    if not sets:
        return None
    train, val = (next((name for name in sets if name.lower() in names), None) for names in (TRAIN, VAL))
    if train is None:
        return Description(train=Part(images=f"{sets[0]}/img" if len(sets) == 1 else ".", supervisely="."))
    parts = [Part(images=f"{name}/img", supervisely=f"{name}/ann") if name else None for name in (train, val)]
    rest = tuple(f"{name}/img" for name in sets if name not in (train, val))
    return Description(train=parts[0], val=parts[1], unlabelled=rest)


def find(root: Path, folder: str) -> str | None:
    """Nothing: a project is recognised as a whole."""
    return None


def read(source: Source) -> Annotations:
    """Which images have files, and which of these hold nothing."""
    meta = read_json(require_inside(source.root / META, source.root), MOST_BYTES)
    try:
        names = tuple(class_name(entry["title"]) for entry in meta["classes"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{source.root / META}: its classes cannot be used ({str(error)[:200]}).") from None
    files, empty, left_out = dict[Path, Path](), set[Path](), Counter[str]()
    for image in source.images:
        path = image.parent.parent / "ann" / f"{image.name}.json"
        if image.parent.name == "img" and path.is_file():
            files[image] = require_inside(path, source.root)
            objects = _objects(path)[1]
            left_out.update(str(one.get("geometryType")) for one in objects if _shape(one) is None)
            if not any(_shape(one) is not None for one in objects):
                empty.add(image)
    return Annotations(names, files, frozenset(empty), partial(_regions, files), remarks=without_area(left_out))


def _objects(path: Path) -> tuple[tuple[int, int] | None, list[dict[str, Any]]]:
    """Height and width, if it says so, and what is annotated."""
    tree = read_json(path, MOST_BYTES)
    try:
        assert isinstance(tree, dict)
        size = tree.get("size") or {}
        found = list(tree["objects"])
        assert all(isinstance(one, dict) for one in found)
        return ((int(size["height"]), int(size["width"])) if size else None), found
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise UserError(f"{path}: not as Supervisely writes it ({str(error)[:100] or 'objects'}).") from None


def _regions(files: Mapping[Path, Path], image: Path) -> Regions:
    size, objects = _objects(files[image])
    regions = tuple(
        Region(f"objects[{index}]", str(one.get("classTitle")), shape)
        for index, one in enumerate(objects)
        if (shape := _shape(one)) is not None
    )
    return Regions(files[image], regions, size)


def _shape(found: dict[str, Any]) -> Shape | None:
    """What was drawn; None where it has no area."""
    points, bitmap = found.get("points") or {}, found.get("bitmap") or {}
    match found.get("geometryType"), points.get("exterior"):
        case "polygon", exterior:
            return Polygon(exterior, tuple(points.get("interior") or ()))
        case "rectangle", [one, other]:
            return rectangle(one, other)
        case "bitmap", _:
            left, top = (*(bitmap.get("origin") or ()), None, None)[:2]
            return Bitmap(bitmap.get("data"), left, top, packed=True)
    return None
