"""The values that a single mask holds, before it is known which classes they stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oneway.common.errors import UserError
from oneway.data.dataset import Colour
from oneway.data.decode.masks import BLOCK, Numbers, read_raw
from oneway.data.folder.classes import MOST_CLASSES

MOST_COUNTED = 2**16  # numbers below this are counted; larger ones are no classes


@dataclass(frozen=True)
class MaskSummary:
    """Which values a mask holds, and how it is stored."""

    path: Path
    mode: str
    coloured: bool
    values: frozenset[int]  # numbers, or colours as 0xRRGGBB; where there are too many for classes, only the first
    palette: tuple[Colour, ...] | None
    pixels: Mapping[int, int]  # of each number below MOST_COUNTED, or of each colour among `values`
    squares: Mapping[int, int]  # how many of these are the first of 2×2 of the same number; empty for colours


def summarise_mask(path: Path) -> MaskSummary | UserError:
    """What a mask holds, or why it cannot be read."""
    try:
        raw = read_raw(path)
    except UserError as error:
        return error
    height = max(1, BLOCK // raw.values.shape[1])
    blocks = [raw.values[top : top + height] for top in range(0, len(raw.values), height)]
    distinct = sorted({value for block in blocks for value in _distinct(block)})[: 2 * MOST_CLASSES]
    pixels, squares = Counter[int](), Counter[int]()
    for index, block in enumerate(blocks):
        pixels.update(_count_colours(block, distinct) if raw.coloured else _count(block))
        if not raw.coloured:
            top = index * height
            squares.update(_count(_first_of_squares(raw.values[top : top + height + 1])))  # reach into the next
    return MaskSummary(path, raw.mode, raw.coloured, frozenset(distinct), raw.palette, pixels, squares)


def _distinct(values: Numbers) -> list[int]:
    """The values that occur, up to twice as many as there can be classes."""
    if values.min() < 0 or values.max() >= 2**24:
        return np.unique(values)[: 2 * MOST_CLASSES].tolist()
    occurs = np.zeros(int(values.max()) + 1, dtype=np.bool_)
    occurs[values] = True
    return np.flatnonzero(occurs)[: 2 * MOST_CLASSES].tolist()


def _first_of_squares(values: Numbers) -> Numbers:
    """The values of pixels that are the first of 2×2 of the same."""
    first = values[:-1, :-1]
    return first[(first == values[1:, :-1]) & (first == values[:-1, 1:]) & (first == values[1:, 1:])]


def _count(values: Numbers) -> dict[int, int]:
    counts = np.bincount(values[(values >= 0) & (values < MOST_COUNTED)])
    return {int(value): int(counts[value]) for value in counts.nonzero()[0]}


def _count_colours(values: Numbers, distinct: list[int]) -> dict[int, int]:
    counts = np.bincount(np.searchsorted(distinct, values.ravel()))  # the colours past those listed come last
    return {value: count for value, count in zip(distinct, counts.tolist(), strict=False) if count}
