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
from math import cos, pi, sin

import numpy as np
import numpy.typing as npt
from PIL import Image

from oneway.data.decode.images import MOST_PIXELS
from oneway.data.decode.outlines import Mask, polygon_mask
from oneway.data.decode.regions import Shape

CORNERS = 64  # of the polygon that stands for a circle
MOST_WORD_BITS = 16  # of a number in the run lengths of Label Studio


def polygon(points: object, size: tuple[int, int], holes: Sequence[object] = (), whole: float | None = None) -> Mask:
    """H×W: a polygon, perhaps with holes.

    Args:
        points: A list of [x, y].
        size: H and W.
        holes: Likewise.
        whole: What width and height are in these units; None where they are pixels.
    """
    mask = polygon_mask(_vertices(points, size, whole), size)
    for hole in holes:
        mask &= ~polygon_mask(_vertices(hole, size, whole), size)
    return mask


def _vertices(points: object, size: tuple[int, int], whole: float | None) -> npt.NDArray[np.float64]:
    vertices = np.array(points, dtype=np.float64)
    if vertices.ndim != 2 or vertices.shape[1] != 2 or len(vertices) < 3:
        count = len(vertices) if vertices.ndim else 0
        raise ValueError(f"a polygon has at least three vertices of x and y; this one has {count}")
    return vertices if whole is None else vertices * (np.array(size[::-1]) / whole)


def rectangle(one: Sequence[float], other: Sequence[float], whole: float | None = None) -> Shape:
    """The one with these two opposite corners."""
    (left, top), (right, bottom) = one, other
    return partial(polygon, [[left, top], [right, top], [right, bottom], [left, bottom]], whole=whole)


def ellipse(x: float, y: float, across: float, down: float, whole: float | None = None) -> Shape:
    """The one with this centre, half as wide and half as high as it is."""
    turns = [2 * pi * corner / CORNERS for corner in range(CORNERS)]
    return partial(polygon, [[x + across * cos(turn), y + down * sin(turn)] for turn in turns], whole=whole)


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
    bits = _Bits(bytes(content) if isinstance(content, list) else b"")
    count, word = bits.take(32), bits.take(5) + 1
    lengths = [bits.take(4) + 1 for _ in range(4)]
    if count != len(values) or word > MOST_WORD_BITS:
        raise ValueError(f"its run lengths are of {count // 4} pixels, and the image has {height * width}")
    at = 0
    while at < count:
        repeated = bits.take(1)
        end = at + bits.take(lengths[bits.take(2)]) + 1
        if end > count:
            raise ValueError("its run lengths reach beyond the image")
        if repeated:
            values[at:end] = bits.take(word) & 0xFF
        else:
            values[at:end] = [bits.take(word) & 0xFF for _ in range(end - at)]
        at = end
    return values.reshape(height, width, 4)[..., 3] > 0


class _Bits:
    """Bytes, from which bits are taken, the highest first."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at, self.held, self.count = content, 0, 0, 0

    def take(self, count: int) -> int:
        while self.count < count:
            if self.at >= len(self.content):
                raise ValueError("its run lengths end too early")
            self.held = (self.held << 8) | self.content[self.at]
            self.at, self.count = self.at + 1, self.count + 8
        self.count -= count
        taken = self.held >> self.count
        self.held &= (1 << self.count) - 1
        return taken


def _place(inside: Mask, left: object, top: object, size: tuple[int, int]) -> Mask:
    """H×W: a small mask at its place; what reaches beyond the image is cut off."""
    if not isinstance(left, int | float) or not isinstance(top, int | float):
        raise ValueError("its picture of the mask has no place")
    mask = np.zeros(size, dtype=np.bool_)
    first_row, first_column = round(top), round(left)
    rows, columns = (
        slice(max(first_row, 0), first_row + inside.shape[0]),
        slice(max(first_column, 0), first_column + inside.shape[1]),
    )
    part = mask[rows, columns] if rows.stop > 0 and columns.stop > 0 else mask[:0, :0]
    skip = rows.start - first_row, columns.start - first_column
    part |= inside[skip[0] : skip[0] + part.shape[0], skip[1] : skip[1] + part.shape[1]]
    return mask
