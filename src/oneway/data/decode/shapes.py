"""Shapes that annotation tools draw, besides COCO's: polygons with holes, circles, and small pictures of a mask.

Coordinates are x and y in pixels, or in fractions of the image's width and height.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from math import cos, pi, sin

import numpy as np
from PIL import Image

from oneway.data.decode.images import MOST_PIXELS
from oneway.data.decode.outlines import FARTHEST, Mask, polygon_mask

CORNERS = 64  # of the polygon that stands for a circle
MOST_WORD_BITS = 16  # of a number in the run lengths of Label Studio


@dataclass(frozen=True)
class Polygon:
    """A polygon, perhaps with holes."""

    points: object  # a list of [x, y]
    holes: tuple[object, ...] = ()
    whole: float | None = None  # what width and height are in these units; None where they are pixels

    def mask(self, size: tuple[int, int]) -> Mask:
        """H×W."""
        mask = polygon_mask(self._vertices(self.points, size), size)
        for hole in self.holes:
            mask &= ~polygon_mask(self._vertices(hole, size), size)
        return mask

    def _vertices(self, points: object, size: tuple[int, int]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        vertices = np.array(points, dtype=np.float64)
        if vertices.ndim != 2 or vertices.shape[1] != 2 or len(vertices) < 3:
            count = len(vertices) if vertices.ndim else 0
            raise ValueError(f"a polygon has at least three vertices of x and y; this one has {count}")
        if self.whole is not None:
            vertices = vertices * (np.array(size[::-1]) / self.whole)
        if not (np.abs(vertices) <= FARTHEST).all():  # also false of what is no number
            raise ValueError(f"a coordinate is not finite, or beyond {FARTHEST}")
        return vertices


def rectangle(one: Sequence[float], other: Sequence[float], whole: float | None = None) -> Polygon:
    """The one with these two opposite corners."""
    (left, top), (right, bottom) = one, other
    return Polygon([[left, top], [right, top], [right, bottom], [left, bottom]], whole=whole)


def ellipse(x: float, y: float, across: float, down: float, whole: float | None = None) -> Polygon:
    """The one with this centre, half as wide and half as high as it is."""
    turns = [2 * pi * corner / CORNERS for corner in range(CORNERS)]
    return Polygon([[x + across * cos(turn), y + down * sin(turn)] for turn in turns], whole=whole)


@dataclass(frozen=True)
class Bitmap:
    """A small picture of the mask, in base64; what is not black in it is inside."""

    data: object
    left: object
    top: object
    packed: bool = False  # by zlib, before base64

    def mask(self, size: tuple[int, int]) -> Mask:
        """H×W."""
        if not isinstance(self.data, str):
            raise ValueError("no picture of the mask is there")
        try:
            content = base64.b64decode(self.data, validate=True)
            if self.packed:
                unpack = zlib.decompressobj()
                content = unpack.decompress(content, MOST_PIXELS)
            with Image.open(BytesIO(content), formats=("PNG",)) as picture:
                if picture.width * picture.height > size[0] * size[1]:
                    raise ValueError(f"a picture of {picture.width}×{picture.height} pixels is larger than its image")
                bands = picture.getbands()
                inside = np.asarray(picture.getchannel("A") if "A" in bands else picture.convert("L")) > 0
        except (binascii.Error, zlib.error, OSError, SyntaxError) as error:
            raise ValueError(f"its picture of the mask cannot be read ({str(error)[:100]})") from None
        return place(inside, self.left, self.top, size)


@dataclass(frozen=True)
class BoxRuns:
    """Lengths of runs along the rows of a box, outside first."""

    counts: tuple[int, ...]
    left: int
    top: int
    width: int
    height: int

    def mask(self, size: tuple[int, int]) -> Mask:
        """H×W."""
        if not 0 < self.width * self.height <= size[0] * size[1] or min(self.width, self.height) < 0:
            raise ValueError(f"a box of {self.width}×{self.height} pixels does not fit into its image")
        if min(self.counts, default=-1) < 0 or sum(self.counts) != self.width * self.height:
            raise ValueError(
                f"runs must be whole numbers that add up to the {self.width * self.height} pixels of the box"
            )
        inside = np.repeat(np.arange(len(self.counts)) % 2 == 1, self.counts).reshape(self.height, self.width)
        return place(inside, self.left, self.top, size)


@dataclass(frozen=True)
class BrushRuns:
    """Label Studio's run lengths of what was painted with a brush: bits that stand for the bytes of an RGBA picture."""

    content: object  # a list of bytes

    def mask(self, size: tuple[int, int]) -> Mask:
        """H×W."""
        height, width = size
        values = np.zeros(4 * height * width, dtype=np.uint8)
        bits = _Bits(bytes(self.content) if isinstance(self.content, list) else b"")
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


def place(inside: Mask, left: object, top: object, size: tuple[int, int]) -> Mask:
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
