"""The values that masks hold, before it is known which classes they stand for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.dataset import Colour
from oneway.data.decode.masks import BLOCK, NO_NUMBER, Numbers, read_raw
from oneway.data.folder.classes import MOST_CLASSES

MOST_COUNTED = 2**16  # numbers below this are counted; larger ones are no classes
RARE = 1e-4  # share of all pixels below which a value in a single mask was rarely painted on purpose
MANY, FEW = 6, 3  # objects from which on the numbers of masks surely count them, and may do so
NEARLY_ALL = 0.9  # of the masks, and of the numbers in some of them, for which that has to hold
LOOKED_AT, TURNS = 3, 64  # masks that are looked at closely, and corners on the way through a region
MOST_VALUES = 64  # in a mask; a photograph has more
REMEMBERED = 2**14  # masks of which a process remembers what they hold: some kilobytes each
SETTLED = 2 * 10**9  # nanoseconds after which a file that is written again has another time, on any disk


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
    """What a mask holds, or why it cannot be read; one that stays as it is, is read once by a process."""
    try:
        with suppress(OSError):  # reading it says what is wrong
            status = path.stat()
            if time.time_ns() - status.st_mtime_ns > SETTLED:
                return _remembered(path, status.st_ino, status.st_size, status.st_mtime_ns)
        return _summarise(path)
    except UserError as error:
        return error


@lru_cache(REMEMBERED)
def _remembered(path: Path, *identity: int) -> MaskSummary:
    return _summarise(path)


def _summarise(path: Path) -> MaskSummary:
    raw = read_raw(path)
    height = max(1, BLOCK // raw.values.shape[1])
    blocks = [raw.values[top : top + height] for top in range(0, len(raw.values), height)]
    distinct = sorted({value for block in blocks for value in _distinct(block)} - {NO_NUMBER})[: 2 * MOST_CLASSES]
    pixels, squares = Counter[int](), Counter[int]()
    for index, block in enumerate(blocks):
        pixels.update(_count_colours(block, distinct) if raw.coloured else _count(block))
        if not raw.coloured:
            top = index * height
            squares.update(_count(_first_of_squares(raw.values[top : top + height + 1])))  # reach into the next
    return MaskSummary(path, raw.mode, raw.coloured, frozenset(distinct), raw.palette, pixels, squares)


def looks_like_mask(path: Path) -> bool:
    """Whether a file can be read as a mask, and has no more values than one."""
    summary = summarise_mask(path)
    return not isinstance(summary, UserError) and len(summary.values) <= MOST_VALUES


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


def rare_values(summaries: Sequence[MaskSummary], grey: int = 1) -> dict[int, Path]:
    """Values that hardly occur in all masks together, and in one of them only: that mask; levels are times `grey`."""
    pixels, masks = Counter[int](), dict[int, list[Path]]()
    for summary in summaries:
        for value, count in summary.pixels.items():
            pixels[shown := value if summary.coloured else value * grey] += count
            masks.setdefault(shown, []).append(summary.path)
    most = RARE * pixels.total()
    return {value: masks[value][0] for value in pixels if pixels[value] < most and len(masks[value]) == 1}


def numbers_objects(summaries: Sequence[MaskSummary], least: int = MANY) -> bool:
    """Whether masks number objects: they hold 1 to k, some few and others more, and each number is in one piece.

    Where every mask shows the same classes, or some lack one in between, the numbers are those of classes. So they are
    where no mask has the `least` number of objects.
    """
    counts = {summary.path: len(summary.values - {0, IGNORE}) for summary in summaries}
    drawn = [summary for summary in summaries if counts[summary.path]]
    counting = [summary for summary in drawn if max(summary.values - {IGNORE}) == counts[summary.path]]
    found = [counts[summary.path] for summary in counting] or [0]
    if max(found) < least or max(found) - min(found) < 2 or len(counting) < NEARLY_ALL * len(drawn):
        return False
    pieces = []
    for summary in sorted(counting, key=lambda summary: -counts[summary.path])[:LOOKED_AT]:
        values = read_raw(summary.path).values
        pieces += [_in_one_piece(values == value) for value in sorted(summary.values - {0, IGNORE})[:MOST_VALUES]]
    return sum(pieces) >= NEARLY_ALL * len(pieces)


def _in_one_piece(inside: npt.NDArray[np.bool_]) -> bool:
    """Whether pixels are connected: from the first of them, along rows and columns by turns, all are reached."""
    rows, columns = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
    inside = np.pad(inside[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], 1)
    reached = np.zeros_like(inside)
    reached[1, inside[1].argmax()] = True
    for _ in range(TURNS):
        before = reached.sum()
        for pixels, hit in ((inside, reached), (inside.T, reached.T)):
            runs = np.cumsum(~pixels.ravel()).reshape(pixels.shape)  # the pixels of a run have the same number
            known = np.zeros(pixels.size + 1, dtype=np.bool_)
            known[runs[hit]] = True
            hit |= known[runs] & pixels
        if reached.sum() == before:
            break
    return bool(reached.sum() == inside.sum())
