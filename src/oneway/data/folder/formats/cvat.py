"""CVAT: the XML file of "CVAT for images", with polygons, masks and boxes."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from oneway.common.bounded import read_bounded
from oneway.common.errors import UserError
from oneway.common.words import composed
from oneway.data.dataset import class_name
from oneway.data.decode.plausible import MOST_PIXELS
from oneway.data.decode.regions import Region, Regions, Shape
from oneway.data.decode.shapes import Turn, box_runs, ellipse, polygon, rectangle
from oneway.data.folder.description import Description
from oneway.data.folder.formats.interface import (
    Annotations,
    AnnotationSource,
    begins_with,
    files_with,
    of_one_file,
    two_files,
    without_area,
)
from oneway.data.folder.walk import require_inside

SIGN = re.compile(rb"<annotations>\s*<version>")
LOOKED_AT = 8  # files; with more of them, each belongs to a single image
MOST_BYTES = 2**30


def recognise(root: Path) -> Description | None:
    """Training and validation in two files."""
    return two_files(root, "cvat", _files_in(root, "."))


def find(root: Path, folder: str) -> str | None:
    """The first such file in a folder, or in `annotations` within."""
    return next(iter(_files_in(root, folder)), None)


def _files_in(root: Path, folder: str) -> list[str]:
    files = files_with(".xml", root, folder)[:LOOKED_AT]
    return [file for file in files if begins_with(SIGN, require_inside(root / file, root))]


def read(source: AnnotationSource) -> Annotations:
    """All of it, but for the outlines."""
    path = source.labels
    content = read_bounded(path, MOST_BYTES)
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise UserError(f"{path}: has definitions of its own (DOCTYPE), which CVAT does not write. Export it again.")
    try:
        tree = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise UserError(f"{path}: not valid XML ({error}).") from None
    if tree.find("track") is not None:
        raise UserError(f"{path}: annotations of a video. Export them with its frames, as 'CVAT for images'.")
    names = [composed((element.text or "").strip()) for element in tree.iterfind("./meta//labels/label/name")]
    images: dict[str, Regions] = {}
    left_out: Counter[str] = Counter()
    for index, image in enumerate(tree.iterfind("image")):
        try:
            images[image.get("name", "")] = _image(path, image, left_out)
        except (ValueError, TypeError) as error:
            raise UserError(f"{path}: image {index + 1} ({image.get('name', '')!r:.100}): {error}.") from None
    used = {region.name for found in images.values() for region in found.regions if region.name}
    if unknown := sorted(used - {*names}) if names else []:
        raise UserError(f"{path}: the label {unknown[0]!r:.80} is used, and not among those that it lists.")
    found = {image: images[name] for image, name in source.match(path, images).items()}
    return of_one_file(path, found, dict.fromkeys(names) or sorted(used), bool(names), without_area(left_out))


def _image(path: Path, image: ElementTree.Element, left_out: Counter[str]) -> Regions:
    height, width = int(image.get("height", "")), int(image.get("width", ""))
    if not 0 < height * width <= MOST_PIXELS or height < 0:
        raise ValueError(f"{width}×{height} pixels are none, or too many")
    regions: list[tuple[int, Region]] = []
    for index, element in enumerate(image):
        shape = _shape(element)
        if shape is not None:
            name = class_name(element.get("label", ""))
            place = f"image {image.get('name', '')!r:.100}, {element.tag} {index + 1}"
            regions.append((int(element.get("z_order", 0)), Region(place, name, shape)))
        elif element.tag != "tag":
            left_out[element.tag] += 1
    ordered = sorted(regions, key=lambda pair: pair[0])  # stable: of one height, the later lies above
    return Regions(path, tuple(region for _, region in ordered), (height, width))


def _shape(element: ElementTree.Element) -> Shape | None:
    """What was drawn, turned clockwise about its centre where it has a rotation; None where it has no area."""

    def number(key: str) -> float:
        return float(element.get(key, ""))

    degrees = float(element.get("rotation", 0))
    match element.tag:
        case "polygon":
            points = element.get("points", "").split(";")
            return partial(polygon, [[float(value) for value in point.split(",")] for point in points])
        case "box":
            one, other = (number("xtl"), number("ytl")), (number("xbr"), number("ybr"))
            turn = Turn(degrees, (one[0] + other[0]) / 2, (one[1] + other[1]) / 2) if degrees else None
            return rectangle(one, other, turn=turn)
        case "ellipse":
            return ellipse(number("cx"), number("cy"), number("rx"), number("ry"), degrees=degrees)
        case "mask":
            counts = tuple(int(count) for count in element.get("rle", "").split(","))
            left, top, width, height = (int(number(key)) for key in ("left", "top", "width", "height"))
            return partial(box_runs, counts, left, top, width, height)
    return None
