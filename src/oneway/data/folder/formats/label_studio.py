"""Label Studio: the JSON file that it exports, with polygons and what was painted with a brush."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from oneway.common.errors import UserError
from oneway.common.words import counted
from oneway.data.dataset import class_name
from oneway.data.decode.json_files import read_json
from oneway.data.decode.regions import Region, Regions, Shape
from oneway.data.decode.shapes import Turn, brush_runs, ellipse, polygon, rectangle
from oneway.data.folder.formats.interface import (
    Annotations,
    AnnotationSource,
    begins_with,
    files_with,
    of_one_file,
    without_area,
)
from oneway.data.folder.walk import Problem, require_inside

SIGN = re.compile(rb'\A\s*\[\s*\{.*"(annotations|completions)"\s*:', re.DOTALL)
UPLOADED = re.compile(r"^[0-9a-f]{8}-")  # what Label Studio puts before the names of files that are uploaded to it
PERCENT = 100.0
DRAWN = {"rle": "brush", "points": "polygon", "radiusX": "ellipse", "height": "rectangle"}
"""What was drawn, by a key that only it has: where `Labels` are a tag of their own, the type of results is `labels`."""


def find(root: Path, folder: str) -> str | None:
    """The first such file in a folder, or in `annotations` within."""
    files = files_with(".json", root, folder)
    return next((file for file in files if begins_with(SIGN, require_inside(root / file, root))), None)


def read(source: AnnotationSource) -> Annotations:
    """All of it, but for the outlines."""
    path = source.labels
    tasks = read_json(path)
    if not isinstance(tasks, list):
        raise UserError(f"{path}: no list of tasks. Export it from Label Studio as JSON.")
    left_out, found, several, nameless = Counter[str](), dict[Path, Regions](), 0, 0
    for index, task in enumerate(tasks):
        try:
            entry, results, more = _task(task)
            several, nameless = several + more, nameless + _count_nameless(results)
            regions = _regions_of(path, index, results, left_out)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{path}: [{index}]: {str(error)[:200]}.") from None
        image = _matching(source, entry)
        if image is None or image in found:
            why = "is for the same image as another task" if image else "names no image that is there"
            source.problems.append(Problem(path, f"[{index}] {why}: {entry[:200]!r}."))
        else:
            found[image] = regions
    names = {region.name for regions in found.values() for region in regions.regions if region.name}
    remarks = [*without_area(left_out)]
    if several:
        remarks.append(f"{several} tasks have several annotations, of which the first is used.")
    if nameless:
        remarks.append(f"{counted(nameless, 'shape')} without a label {'is' if nameless == 1 else 'are'} left out.")
    return of_one_file(path, found, sorted(names), False, tuple(remarks))


def _task(task: dict[str, Any]) -> tuple[str, list[Any], bool]:
    """The image that a task names, the results of its first annotation, and whether there are more."""
    data = task["data"]
    entry = next((str(data[key]) for key in ("image", "img", "image_url", "ocr") if key in data), None)
    if entry is None:
        entry = next(str(value) for value in data.values() if isinstance(value, str))
    made = [one for one in task.get("annotations", task.get("completions", [])) if not one.get("was_cancelled")]
    results = made[0]["result"] if made else []
    return entry, list(results), len(made) > 1


def _count_nameless(results: list[Any]) -> int:
    """How many shapes have no label: where those have a tag of their own, they are results with the same id."""
    labelled = {result.get("id") for result in results if str(result.get("type", "")).endswith("labels")}
    return sum(result.get("type") in DRAWN.values() and result.get("id") not in labelled for result in results)


def _matching(source: AnnotationSource, entry: str) -> Path | None:
    """The image that alone has the name at the end of a path or an address, perhaps but for what an upload added."""
    parts = urlsplit(entry)
    path = parse_qs(parts.query).get("d", [parts.path])[0]
    name = PurePosixPath(unquote(path).replace("\\", "/")).name
    return source.named(name) or source.named(UPLOADED.sub("", name))


def _regions_of(path: Path, task: int, results: list[Any], left_out: Counter[str]) -> Regions:
    regions, size = list[Region](), None
    for index, result in enumerate(results):
        kind, value = str(result.get("type", "")), result.get("value", {})
        if not kind.endswith("labels"):
            continue  # a relation, a choice, or a shape whose label is a result of its own, with the shape once more
        drawn = kind.removesuffix("labels") or next((DRAWN[key] for key in DRAWN if key in value), kind)
        shape = _shape(drawn, value)
        if shape is None:
            left_out[drawn] += 1
            continue
        if turned := result.get("image_rotation"):  # regions then lie on the turned image, in percent of its sides
            raise ValueError(
                f"result[{index}]: drawn on an image that was turned by {turned!r:.20}° in Label Studio. Turn it back "
                "there, and export again"
            )
        if result.get("original_width") and result.get("original_height"):
            size = int(result["original_height"]), int(result["original_width"])
        place = f"[{task}].annotations[0].result[{index}]"
        regions += [Region(place, class_name(str(name)), shape) for name in value.get(kind, [])[:1]]
    return Regions(path, tuple(regions), size)


def _shape(drawn: str, value: dict[str, Any]) -> Shape | None:
    """The shape, in percent of the image; None where it has no area.

    A rectangle is turned clockwise about its upper left corner, an ellipse about its centre.
    """
    if drawn == "brush":
        return partial(brush_runs, value.get("rle"))
    if drawn == "polygon":
        return partial(polygon, value.get("points"), whole=PERCENT)
    degrees = float(value.get("rotation") or 0)
    if drawn == "rectangle":
        x, y = float(value["x"]), float(value["y"])
        opposite = x + float(value["width"]), y + float(value["height"])
        return rectangle((x, y), opposite, whole=PERCENT, turn=Turn(degrees, x, y) if degrees else None)
    if drawn == "ellipse":
        x, y, across, down = (float(value[key]) for key in ("x", "y", "radiusX", "radiusY"))
        return ellipse(x, y, across, down, whole=PERCENT, degrees=degrees)
    return None
