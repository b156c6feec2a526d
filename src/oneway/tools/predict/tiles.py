"""Images that are too large for one pass: overlapping tiles, blended where they overlap.

Tiles begin where cells of the coarsest features begin in the whole image, so that both see the same cells. What a
tile's border does to them fades within a few of these; there, a neighbour counts that is farther from its own border.

Shapes: an image has H×W pixels, a tile h×w of them; F features, or classes, at a stride s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from oneway.common.terms import COARSEST_STRIDE
from oneway.data.dataset import Bytes
from oneway.ops.losses import upsample
from oneway.ops.most_probable import BAND, largest_of, upsample_rows

SMALLEST_TILE = COARSEST_STRIDE
STRIDES = (1, 2, 4, 8, 16, COARSEST_STRIDE)

Span = tuple[int, int]
"""The first, and the one behind the last, along a side."""


class Box(NamedTuple):
    """Where a tile lies in its image, in pixels or in cells."""

    rows: Span
    columns: Span

    def at(self, stride: int) -> Box:
        """The box in cells of a stride."""
        return Box(*((start // stride, -(-stop // stride)) for start, stop in self))

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]


Look = Callable[[Tensor, Box], Tensor]
"""1×F×h/s×w/s of the 1×h×w×3 tile in a box, for any stride s."""


def spans(length: int, tile: int) -> list[Span]:
    """Tiles along a side, from border to border, in whole cells: each shares a quarter or more with the next."""
    tile = max(2 * COARSEST_STRIDE, -(-tile // COARSEST_STRIDE) * COARSEST_STRIDE)
    if length <= tile:
        return [(0, length)]
    cells = math.ceil((length - tile) / COARSEST_STRIDE)
    count = math.ceil(cells / (tile // COARSEST_STRIDE - max(1, -(-tile // COARSEST_STRIDE // 4))))
    starts = [COARSEST_STRIDE * round(index * cells / count) for index in range(count + 1)]
    return [(start, min(start + tile, length)) for start in starts]


def shares(parts: list[Span]) -> list[Tensor]:
    """What each span contributes to its places: together 1, and nothing near a border that another span reaches over.

    From span to span, they change within the middle half of what the two have in common.
    """
    found = [torch.ones(stop - start) for start, stop in parts]
    for index, ((_, stop), (start, _)) in enumerate(pairwise(parts)):
        common = stop - start
        rising = ((torch.arange(common) + 0.5 - common / 4) / (common / 2)).clamp(0, 1)
        found[index][-common:] *= 1 - rising
        found[index + 1][:common] *= rising
    return found


def strips(look: Look, image: Bytes, tile: tuple[int, int]) -> Iterator[tuple[int, Span, Tensor]]:
    """For each row of tiles: the stride, which of the cells' rows it reaches, and its 1×F×h/s×W/s share in the whole.

    The shares of all rows add up to the whole.
    """
    rows, columns = spans(image.shape[0], tile[0]), spans(image.shape[1], tile[1])
    stride, down, right = 0, [], []
    for index, row in enumerate(rows):
        strip: Tensor | None = None
        for number, column in enumerate(columns):
            box = Box(row, column)
            found = look(torch.from_numpy(image[None, slice(*row), slice(*column)].copy()), box)
            if not stride:
                stride = stride_of(found, box)
                down, right = (shares([Box(span, span).at(stride).rows for span in side]) for side in (rows, columns))
            cells = box.at(stride)
            if found.shape[2:] != cells.size:
                found = upsample(found, cells.size)
            if strip is None:
                strip = found.new_zeros(1, found.shape[1], cells.size[0], -(-image.shape[1] // stride))
            strip[..., slice(*cells.columns)] += found * (down[index][:, None] * right[number]).to(found)
        assert strip is not None
        yield stride, Box(row, row).at(stride).rows, strip


def stride_of(found: Tensor, box: Box) -> int:
    """The stride of what was found in a box; 1 where it is none of ours, and has to be upsampled."""
    return next((stride for stride in STRIDES if box.at(stride).size == (found.shape[2], found.shape[3])), 1)


def survey(look: Look, image: Bytes, tile: tuple[int, int]) -> Tensor:
    """1×F×H/s×W/s: the features of a whole image."""
    whole: Tensor | None = None
    for stride, (first, last), strip in strips(look, image, tile):
        if whole is None:
            whole = strip.new_zeros(1, strip.shape[1], -(-image.shape[0] // stride), strip.shape[3])
        whole[:, :, first:last] += strip
    assert whole is not None
    return whole


def slide(logits: Look, image: Bytes, tile: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Labels and confidence (H×W, on the CPU) from the logits of tiles.

    Logits are kept for one row of tiles, and at full size for a few rows of pixels: memory hardly grows with the image.
    """
    height, width = pixels = image.shape[0], image.shape[1]
    labels, confidence = torch.empty(pixels, dtype=torch.uint8), torch.empty(pixels)
    kept: Tensor | None = None
    begins, done = 0, 0  # the first row of cells that is kept, and the first row of pixels that is not done
    following = [start for start, _ in spans(height, tile[0])[1:]]
    for stride, (first, last), strip in strips(logits, image, tile):
        fresh = strip.new_zeros(*strip.shape[:2], last - begins, strip.shape[3])
        if kept is not None:
            fresh[:, :, : kept.shape[2]] = kept
        fresh[:, :, first - begins :] += strip
        # Rows that are mixed from cells before the next tiles' first.
        until = max(done, following.pop(0) - 2 * stride) if following else height
        step = max(1, BAND // (strip.shape[1] * width * stride)) * stride
        for top in range(done, until, step):
            bottom = min(top + step, until)
            rows = upsample_rows(fresh, pixels, top, bottom, begins, -(-height // stride))
            for target, found in zip((labels, confidence), largest_of(rows), strict=True):
                target[top:bottom] = found
        done = until
        keep = max(begins, done // stride - 1)
        kept, begins = fresh[:, :, keep - begins :], keep
    return labels, confidence
