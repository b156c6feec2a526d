"""The values that masks hold, before it is known which classes they stand for.

Numbers or colours may stand for other classes in some masks than in those beside them: two codings in one folder. They
meet where masks of another origin, say predictions of class indices, are put among the masks of a folder. Read by one
coding, the others would train wrongly without an error: black and white among 0 and 1 would all be ignored.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.common.words import listed
from oneway.data.dataset import Colour
from oneway.data.decode.masks import BLOCK, NO_NUMBER, Numbers, read_raw
from oneway.data.folder.classes import MOST_CLASSES

MOST_COUNTED = 2**16  # numbers below this are counted; larger ones are no classes
SHOWN = 3  # files of each coding that a message names
VALUES = 8  # values that it lists
RARE = 1e-4  # share of all pixels below which a value in a single mask was rarely painted on purpose
MANY = 6  # objects from which on the numbers of a mask may count them
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


def numbers_objects(summaries: Sequence[MaskSummary]) -> bool:
    """Whether masks number objects: they hold 1 to k, some few and others more, and each number is in one piece.

    Where every mask shows the same classes, or some lack one in between, the numbers are those of classes.
    """
    counts = {summary.path: len(summary.values - {0, IGNORE}) for summary in summaries}
    drawn = [summary for summary in summaries if counts[summary.path]]
    counting = [summary for summary in drawn if max(summary.values - {IGNORE}) == counts[summary.path]]
    found = [counts[summary.path] for summary in counting] or [0]
    if max(found) < MANY or max(found) - min(found) < 2 or len(counting) < NEARLY_ALL * len(drawn):
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


Group = tuple[str, list[MaskSummary]]


def refuse_two_codings(summaries: Sequence[MaskSummary], colours: frozenset[Colour], means_255: bool) -> None:
    """Raise a UserError that names masks of each coding, if there are two.

    `colours` stand for classes, where a table says so. `means_255`: the user has said that 255 is ignored.
    """
    for one, other in _meeting(summaries, colours, means_255):
        (what, masks), (what_else, others) = one, other
        raise UserError(
            f"Two kinds of masks meet: {_named(masks)} {what}, and {_named(others)} {what_else}. A class is the same "
            "number or colour in all masks: save the ones as the others are. `oneway predict` writes masks as those "
            "were that the model learnt from."
        )


def _meeting(
    summaries: Sequence[MaskSummary], colours: frozenset[Colour], means_255: bool
) -> Iterator[tuple[Group, Group]]:
    painted = [summary for summary in summaries if summary.coloured]
    indexed = [summary for summary in summaries if summary.palette is not None]
    grey = [summary for summary in summaries if summary.palette is None and not summary.mode.startswith("RGB")]
    shown_otherwise = [summary for summary in indexed if not _used(summary) <= colours]
    # A single one of another kind is refused when it is decoded, and spoils nothing else.
    if min(len(painted), len(grey)) > 1:
        yield ("are painted in colours", painted), (f"hold numbers ({_values(grey)})", grey)
    if min(len(painted), len(shown_otherwise)) > 1:
        yield ("are painted in colours", painted), ("have a palette", shown_otherwise)
    if not painted and grey and indexed and _numbered_otherwise(grey, indexed):
        yield (f"hold {_values(grey)}", grey), (f"have a palette, and {_values(indexed)}", indexed)
    white = [summary for summary in summaries if IGNORE in summary.values and summary.mode != "1"]
    ones = [summary for summary in summaries if 1 in summary.values and summary.mode != "1"]
    held = {value for summary in summaries if summary.mode != "1" for value in summary.values}
    apart = not any(IGNORE in summary.values for summary in ones)
    if not painted and not means_255 and white and ones and apart and held <= {0, 1, IGNORE}:
        yield ("hold 0 and 1", ones), ("hold 0 and 255", white)


def _numbered_otherwise(grey: Sequence[MaskSummary], indexed: Sequence[MaskSummary]) -> bool:
    """Whether masks with a palette seem to hold class indices, where the others hold other numbers."""
    numbers, indices = _all(grey), _all(indexed) - {0, IGNORE}
    numbers = numbers - {IGNORE} if numbers - {0, IGNORE} else numbers
    count = len(numbers)
    counting_up = not numbers or max(numbers) < 2 * count
    return bool(indices) and not counting_up and (not indices <= numbers or max(indices) < count)


def _used(summary: MaskSummary) -> set[Colour]:
    return {summary.palette[value] for value in summary.values} if summary.palette else set()


def _all(summaries: Sequence[MaskSummary]) -> set[int]:
    return {value for summary in summaries for value in summary.values}


def _values(summaries: Sequence[MaskSummary]) -> str:
    return listed(sorted(_all(summaries)), VALUES)


def _named(summaries: Sequence[MaskSummary]) -> str:
    return listed((summary.path for summary in summaries), SHOWN)
