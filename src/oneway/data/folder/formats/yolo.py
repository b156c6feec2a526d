"""YOLO: a text file with polygons for each image, in `labels` beside `images`; `data.yaml` names the classes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from oneway.common.bounded import read_bounded
from oneway.common.errors import UserError
from oneway.config import read_yaml
from oneway.data.dataset import class_name
from oneway.data.decode.regions import Region, Regions
from oneway.data.decode.shapes import polygon
from oneway.data.folder.description import FILE, DatasetPart, Description
from oneway.data.folder.formats.interface import Annotations, AnnotationSource, begins_with
from oneway.data.folder.walk import Problem, choose_folder, entries_of, require_inside, stem_below, walk

SETTINGS = "data.yaml"
LISTS = ("classes.txt", "obj.names")  # of classes, where no YAML file is there
SIGN = re.compile(rb"\A\s*\d+( +-?[\d.eE+-]+){6,}\s")
MOST_BYTES = 2**26  # of a file of polygons
MOST_LIST_BYTES = 2**24
SHORTEST = 16  # bytes of a polygon
LOOKED_AT = 16  # files; many may be empty


def recognise(root: Path) -> Description | None:
    """The parts that a `data.yaml` names."""
    if (tree := _settings(root)) is None:
        return None
    train, val, test = (_part(root, tree.get("path"), tree.get(key)) for key in ("train", "val", "test"))
    # YOLO wants a `val`, and files for a few images name those that train there too: of these, some are held out.
    val, test = val if val != train else None, test if test not in (train, val) else None
    return None if train is None else Description(train=train, val=val, test=test)


def _part(root: Path, base: object, images: object) -> DatasetPart | None:
    """Images in a folder, with labels in the one that is called `labels` instead of `images`; or those of a list."""
    if not isinstance(images, str):
        return None
    entry = PurePosixPath(images.replace("\\", "/"))
    inner = PurePosixPath(*(part for part in entry.parts if part not in ("..", ".", "/")))
    above = PurePosixPath(base.replace("\\", "/")) if isinstance(base, str) else PurePosixPath()
    if entry.suffix == ".txt":
        there = all(require_inside(root / name, root).exists() for name in (inner, "images", "labels"))
        return DatasetPart(images="images", yolo="labels", list=inner.as_posix()) if there else None
    for place in (above / inner, above.name / inner, inner):
        if place.is_absolute() or ".." in place.parts or not require_inside(root / place, root).is_dir():
            continue
        at = max((index for index, part in enumerate(place.parts) if part.lower() == "images"), default=None)
        labels = place if at is None else PurePosixPath(*place.parts[:at], "labels", *place.parts[at + 1 :])
        if require_inside(root / labels, root).is_dir():
            return DatasetPart(images=place.as_posix(), yolo=labels.as_posix())
    return None


def find(root: Path, folder: str) -> str | None:
    """A folder `labels`, or the one of the images, with files of polygons, where a list names the classes."""
    if not any((root / name).is_file() for name in LISTS) and _settings(root) is None:
        return None
    for place in dict.fromkeys(filter(None, (choose_folder(root, folder, ("labels",)), folder))):
        files = (path for path in walk(require_inside(root / place, root), root, []) if path.suffix.lower() == ".txt")
        if any(begins_with(SIGN, path) for path in islice(files, LOOKED_AT)):
            return place
    return None


def _settings(root: Path) -> dict[Any, Any] | None:
    """What a YAML file says that names classes and images, as `data.yaml` does."""
    for entry in entries_of(root):
        if entry.name.lower().endswith((".yaml", ".yml")) and entry.name != FILE and entry.is_file():
            try:
                tree = read_yaml(require_inside(root / entry.name, root))
            except UserError:
                if entry.name == SETTINGS and (root / "labels").is_dir():
                    raise
                continue  # it may be another program's
            if isinstance(tree, dict) and "names" in tree and ("train" in tree or "nc" in tree):
                return tree
    return None


def read(source: AnnotationSource) -> Annotations:
    """Which images have files; polygons are read when they are painted."""
    names = _names(source.root, source.labels)
    files: dict[Path, Path] = {}
    empty = set[Path]()
    for path in walk(source.labels, source.root, []):
        if path.suffix.lower() != ".txt" or path.name in LISTS:
            continue
        image = source.by_stem.get(stem_below(path, source.labels))
        if image is not None:
            files[image] = path
            if path.stat().st_size < SHORTEST and not next(_lines(path), None):
                empty.add(image)
        elif begins_with(SIGN, path):
            source.problems.append(Problem(path, "no image has the name of these labels. Add the image, or remove it."))
    regions = partial(_regions, files, names)
    return Annotations(tuple(names.values()), files, frozenset(empty), regions, coding=f", numbers {names}")


def _names(root: Path, labels: Path) -> dict[int, str]:
    """Names of the classes by number."""
    tree = _settings(root)
    listed: object = tree["names"] if tree is not None else None
    if listed is None:
        file = next((path for name in LISTS for path in (root / name, labels / name) if path.is_file()), None)
        if file is None:
            raise UserError(f"{root}: no data.yaml lists the names of the classes. Write `names: [crack, …]` into one.")
        content = read_bounded(require_inside(file, root), MOST_LIST_BYTES).decode("utf-8-sig", errors="replace")
        listed = [line.strip() for line in content.splitlines() if line.strip()]
    entries = dict(enumerate(listed)) if isinstance(listed, list) else listed
    try:
        if not isinstance(entries, dict) or not entries:
            raise ValueError("write [name, …] or {number: name, …}")
        return {int(number): class_name(str(name)) for number, name in sorted(entries.items())}
    except (ValueError, TypeError) as error:
        raise UserError(f"{root}: the `names` of its classes cannot be used ({str(error)[:200]}).") from None


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    content = read_bounded(path, MOST_BYTES).decode("ascii", errors="replace")
    return ((number, parts) for number, line in enumerate(content.splitlines(), 1) if (parts := line.split()))


def _regions(files: Mapping[Path, Path], names: Mapping[int, str], image: Path) -> Regions:
    path = files[image]
    return Regions(path, tuple(_region(path, number, parts, names) for number, parts in _lines(path)))


def _region(path: Path, line: int, parts: list[str], names: Mapping[int, str]) -> Region:
    try:
        label, numbers = int(parts[0]), [float(part) for part in parts[1:]]
    except ValueError:
        raise UserError(f"{path}: line {line}: not a class and coordinates: {' '.join(parts)[:80]!r}.") from None
    if label not in names:
        raise UserError(f"{path}: line {line}: no class has number {label}; known are {min(names)} to {max(names)}.")
    if len(numbers) in (4, 5):
        raise UserError(f"{path}: line {line}: a box, which says nothing about pixels. Export polygons (YOLO-seg).")
    if len(numbers) % 2 or len(numbers) < 6:
        raise UserError(
            f"{path}: line {line}: a polygon is x, y, x, y, … of at least three vertices; this one has {len(numbers)} "
            "numbers."
        )
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    return Region(f"line {line}", names[label], partial(polygon, points, whole=1.0))
