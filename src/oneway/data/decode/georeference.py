"""Where on the earth an image lies: read from a GeoTIFF, or from files beside an image, and written beside a mask.

Coordinates: an image covers [0, W] × [0, H], and its point (column, row) lies on the map at
`corner + column · right + row · down`. These are complex numbers: x, or longitude, and i times y, or latitude.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import numpy as np

from oneway.common.bounded import open_regular, read_bounded
from oneway.common.errors import UserError
from oneway.common.links import is_ordinary
from oneway.data.decode.header import read_header
from oneway.data.decode.images import SIDEWAYS
from oneway.data.decode.structure import LOCATING, Directory, first_directory

ORIENTATION = 274
MODEL, RASTER = 1024, 1025  # keys of a GeoTIFF: what its coordinates are, and what of a pixel they are about
POINT = 2  # the centres of pixels, not their corners
CODE_KEYS = {1: 3072, 2: 2048}  # where the EPSG code is, by what the coordinates are: projected, geographic
CODES = range(1024, 32767)  # others mean that there is none

FROM_RIGHT, FROM_BELOW = (2, 3, 7, 8), (3, 4, 6, 7)  # orientations whose columns, or rows, are stored in reverse
FARTHEST = 1e12  # from the origin of a map: beyond, a number is a mistake
MOST_BYTES = 2**20  # of a file beside an image
KNOWN = re.compile(r"EPSG:\d{4,6}|[A-Z_]+\[.{1,10000}\]")  # or WKT; but nothing that names a file or an address
GDAL, PROJECTION = ".aux.xml", ".prj"  # the first stands behind the suffix of an image, the others in its place


@dataclass(frozen=True)
class Georeference:
    """Where the corner of an image lies, and how far a pixel leads to the right and down."""

    right: complex
    down: complex
    corner: complex
    crs: str = ""
    """The coordinate reference system: EPSG:NNNN, or WKT; nothing where it is not known."""

    def upright(self, orientation: int, height: int, width: int) -> Georeference:
        """The same place of an upright image of this height and width, whose pixels are stored in an orientation."""
        right, down, corner = self.right, self.down, self.corner
        sideways = orientation in SIDEWAYS
        columns, rows = (height, width) if sideways else (width, height)
        if orientation in FROM_RIGHT:
            right, corner = -right, corner + columns * right
        if orientation in FROM_BELOW:
            down, corner = -down, corner + rows * down
        right, down = (down, right) if sideways else (right, down)
        return replace(self, right=right, down=down, corner=corner)

    def reduced(self, factor: int) -> Georeference:
        """The same place of an image that is so many times smaller each way."""
        return replace(self, right=factor * self.right, down=factor * self.down)


def read_georeference(path: Path, height: int, width: int) -> Georeference | None:
    """Where an image lies that `read_image` gives with this height and width; None where nothing sensible says it.

    A TIFF's own tags count more than a world file, and GDAL's file beside it more than both.
    """
    beside = companions(path)
    try:
        with open_regular(path) as file:
            first = first_directory(file)
            tagged, code = _read_tags(file, first) if first else (None, "")
        if not (tagged or beside):
            return None
        orientation = first.tags.get(ORIENTATION, 1) if first else read_header(path).orientation
    except (OSError, UserError):
        return None
    noted = world = None
    name = projection = ""
    for companion in reversed(beside):  # of two of a kind, the first has the last word
        text = _text(companion)
        if companion.name.endswith(GDAL):
            noted, name = _parse_gdal(text)
        elif companion.suffix.lower() == PROJECTION:
            projection = _parse_crs(text)
        else:
            world = _place(text.split()[:6], centred=True) or world
    place = noted or tagged or world
    return place and replace(place.upright(orientation, height, width), crs=name or code or projection)


def companions(path: Path) -> list[Path]:
    """The files beside an image that may say where it lies, going by their names."""
    kind = path.suffix[1:].lower()
    suffixes = (f".{kind[:1]}{kind[-1:]}w", f".{kind}w", ".wld", PROJECTION)
    names = [path.with_suffix(spelt) for suffix in suffixes for spelt in (suffix, suffix.upper())]
    return [name for name in (path.with_name(path.name + GDAL), *names) if is_ordinary(name)]


def files_beside(picture: str, place: Georeference | None) -> dict[str, bytes | None]:
    """What says to other programs where a picture lies, by the paths of files; None for one that must not be there."""
    path = PurePosixPath(picture)
    world = path.with_suffix(f".{path.suffix[1]}{path.suffix[-1]}w").as_posix()
    if place is None:
        return {world: None, picture + GDAL: None}
    centre = place.corner + (place.right + place.down) / 2
    numbers = [part for step in (place.right, place.down, centre) for part in (step.real, step.imag)]
    lines = "".join(f"{np.format_float_positional(number, trim='0')}\n" for number in numbers)
    xml = f"<PAMDataset>\n  <SRS>{escape(place.crs)}</SRS>\n</PAMDataset>\n"
    return {world: lines.encode(), picture + GDAL: xml.encode() if place.crs else None}


def _read_tags(file: BinaryIO, first: Directory) -> tuple[Georeference | None, str]:
    scale, tie, matrix, listed = (first.read(tag, file) for tag in LOCATING)
    keys: dict[int, int] = {listed[at]: listed[at + 3] for at in range(4, len(listed) - 3, 4) if not listed[at + 1]}
    code = keys.get(CODE_KEYS.get(keys.get(MODEL, 0), 0))
    crs = f"EPSG:{code}" if code in CODES else ""
    if len(scale) > 1 and len(tie) > 5 and scale[0] and scale[1]:
        across, up = scale[0], abs(scale[1])  # as GDAL takes a negative one
        numbers = [across, 0, 0, -up, tie[3] - tie[0] * across, tie[4] + tie[1] * up]
    else:
        numbers = [matrix[at] for at in (0, 4, 1, 5, 3, 7)] if len(matrix) == 16 else []
    return _place(numbers, centred=keys.get(RASTER) == POINT), crs


def _parse_gdal(text: str) -> tuple[Georeference | None, str]:
    try:
        tree = ElementTree.fromstring("" if "<!DOCTYPE" in text else text)
    except ElementTree.ParseError:
        return None, ""
    numbers = (tree.findtext("GeoTransform") or "").split(",")
    place = _place([numbers[at] for at in (1, 4, 2, 5, 0, 3)]) if len(numbers) == 6 else None
    return place, _parse_crs(tree.findtext("SRS") or "")


def _parse_crs(text: str) -> str:
    found = " ".join(text.split())
    return found if KNOWN.fullmatch(found) and found.isprintable() else ""


def _place(numbers: Sequence[str | float], centred: bool = False) -> Georeference | None:
    """By x and y to the right, down, and of the corner, or else the centre of the first pixel; None of nonsense."""
    try:
        values = [float(number) for number in numbers]
    except ValueError:
        return None
    if len(values) != 6 or not all(abs(value) < FARTHEST for value in values):  # nor is NaN
        return None
    right, down, corner = (complex(*values[at : at + 2]) for at in (0, 2, 4))
    if not (right.conjugate() * down).imag:  # a pixel without an area
        return None
    return Georeference(right, down, corner - (right + down) / 2 if centred else corner)


def _text(path: Path) -> str:
    """Nothing where a file cannot be read: its image is predicted all the same."""
    try:
        return read_bounded(path, MOST_BYTES).decode("utf-8-sig")
    except (UserError, ValueError):
        return ""
