"""Shapes that annotation tools draw, besides COCO's: polygons with holes, circles, and small pictures of a mask.

Coordinates are x and y in pixels, or in fractions of the image's width and height.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from math import cos, pi, radians, sin
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from oneway.data.decode.outlines import Mask, polygon_mask
from oneway.data.decode.plausible import MOST_PIXELS
from oneway.data.decode.regions import Shape

CORNERS = 64  # of the polygon that stands for a circle
MOST_WORD_BITS = 16  # of a number in the run lengths of Label Studio


class Turn(NamedTuple):
    """A rotation of a shape, clockwise as it is seen, about a point."""

    degrees: float
    x: float
    y: float


def polygon(
    points: object,
    size: tuple[int, int],
    holes: Sequence[object] = (),
    whole: float | None = None,
    turn: Turn | None = None,
) -> Mask:
    """H×W: a polygon, perhaps with holes, each a list of [x, y], or turned.

    `whole` is what width and height are in these units; None where they are pixels.
    """
    vertices = _vertices(points, size, whole)
    mask = polygon_mask(vertices if turn is None else _turned(vertices, size, whole, turn), size)
    for hole in holes:
        mask &= ~polygon_mask(_vertices(hole, size, whole), size)
    return mask


def _vertices(points: object, size: tuple[int, int], whole: float | None) -> npt.NDArray[np.float64]:
    vertices = np.array(points, dtype=np.float64)
    if vertices.ndim != 2 or vertices.shape[1] != 2 or len(vertices) < 3:
        count = len(vertices) if vertices.ndim else 0
        raise ValueError(f"a polygon has at least three vertices of x and y; this one has {count}")
    return vertices if whole is None else vertices * (np.array(size[::-1]) / whole)


def _turned(
    vertices: npt.NDArray[np.float64], size: tuple[int, int], whole: float | None, turn: Turn
) -> npt.NDArray[np.float64]:
    """Turned in pixels, where a right angle stays one; in fractions of an oblong image it would not."""
    centre = np.array((turn.x, turn.y)) * (1 if whole is None else np.array(size[::-1]) / whole)
    cosine, sine = cos(radians(turn.degrees)), sin(radians(turn.degrees))
    return (vertices - centre) @ np.array([[cosine, sine], [-sine, cosine]]) + centre


def rectangle(
    one: Sequence[float], other: Sequence[float], whole: float | None = None, turn: Turn | None = None
) -> Shape:
    """The one with these two opposite corners, before it is turned."""
    (left, top), (right, bottom) = one, other
    return partial(polygon, [[left, top], [right, top], [right, bottom], [left, bottom]], whole=whole, turn=turn)


def ellipse(x: float, y: float, across: float, down: float, whole: float | None = None, degrees: float = 0.0) -> Shape:
    """The one with this centre, half as wide and half as high as it is before it is turned clockwise about it."""
    angles = [2 * pi * corner / CORNERS for corner in range(CORNERS)]
    points = [[x + across * cos(angle), y + down * sin(angle)] for angle in angles]
    return partial(polygon, points, whole=whole, turn=Turn(degrees, x, y) if degrees else None)


def bitmap(data: object, left: object, top: object, size: tuple[int, int], packed: bool = False) -> Mask:
    """H×W: a small picture of the mask, in base64, perhaps packed by zlib before; what is not black in it is inside."""
    if not isinstance(data, str):
        raise ValueError("no picture of the mask is there")
    try:
        content = base64.b64decode(data, validate=True)
        if packed:
            content = zlib.decompressobj().decompress(content, MOST_PIXELS)
        with Image.open(BytesIO(content), formats=("PNG",)) as picture:
            if picture.width * picture.height > size[0] * size[1]:
                raise ValueError(f"a picture of {picture.width}×{picture.height} pixels is larger than its image")
            bands = picture.getbands()
            inside = np.asarray(picture.getchannel("A") if "A" in bands else picture.convert("L")) > 0
    except (binascii.Error, zlib.error, OSError, SyntaxError) as error:
        raise ValueError(f"its picture of the mask cannot be read ({str(error)[:100]})") from None
    return _place(inside, left, top, size)


def box_runs(counts: Sequence[int], left: int, top: int, width: int, height: int, size: tuple[int, int]) -> Mask:
    """H×W: lengths of runs along the rows of a box, outside first."""
    if not 0 < width * height <= size[0] * size[1] or min(width, height) < 0:
        raise ValueError(f"a box of {width}×{height} pixels does not fit into its image")
    if min(counts, default=-1) < 0 or sum(counts) != width * height:
        raise ValueError(f"runs must be whole numbers that add up to the {width * height} pixels of the box")
    inside = np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(height, width)
    return _place(inside, left, top, size)


def brush_runs(content: object, size: tuple[int, int]) -> Mask:
    """H×W: Label Studio's run lengths of what a brush has painted: bits that stand for the bytes of an RGBA picture."""
    height, width = size
    values = np.zeros(4 * height * width, dtype=np.uint8)
    bits = "".join(f"{byte:08b}" for byte in bytes(content if isinstance(content, list) else b""))
    place = 0

    def take(length: int) -> int:
        nonlocal place
        place += length
        if place > len(bits):
            raise ValueError("its run lengths end too early")
        return int(bits[place - length : place], 2)

    count, word = take(32), take(5) + 1
    lengths = [take(4) + 1 for _ in range(4)]
    if count != len(values) or word > MOST_WORD_BITS:
        raise ValueError(f"its run lengths are of {count // 4} pixels, and the image has {height * width}")
    at = 0
    while at < count:
        repeated = take(1)
        end = at + take(lengths[take(2)]) + 1
        if end > count:
            raise ValueError("its run lengths reach beyond the image")
        if repeated:
            values[at:end] = take(word) & 0xFF
        else:
            values[at:end] = [take(word) & 0xFF for _ in range(end - at)]
        at = end
    return values.reshape(height, width, 4)[..., 3] > 0


def _place(inside: Mask, left: object, top: object, size: tuple[int, int]) -> Mask:
    """H×W: a small mask at its place; what reaches beyond the image is cut off."""
    if not isinstance(left, int | float) or not isinstance(top, int | float):
        raise ValueError("its picture of the mask has no place")
    mask = np.zeros(size, dtype=np.bool_)
    row, column = round(top), round(left)
    seen = inside[max(-row, 0) :, max(-column, 0) :]
    part = mask[max(row, 0) :, max(column, 0) :][: seen.shape[0], : seen.shape[1]]
    part |= seen[: part.shape[0], : part.shape[1]]
    return mask
