"""Palettes that differ from mask to mask: what a class is there, its index or its colour.

Programs that write palettes number colours as they please: by how often they occur, or in the order in which they were
painted. Then an index stands for one class in one mask and for another in the next, and only colours mean the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.common.threads import in_threads
from oneway.common.words import counted
from oneway.data.dataset import Colour
from oneway.data.decode.images import open_image
from oneway.data.decode.masks import VERY_NEAR, pack, palette_of
from oneway.data.folder.classes import Classes, Value, by_colour
from oneway.data.folder.inferred import TWO_NAMES, Inferred, shown
from oneway.data.folder.mask_summary import MaskSummary, summarise_mask

BLACK, WHITE = (0, 0, 0), (255, 255, 255)
MOST_COLOURS = 32  # of classes in all masks; more of them are shades
LOOKED_AT, DECODED = 256, 8  # masks whose palettes are compared where classes are described, and those of others


@dataclass(frozen=True)
class Conflict:
    """Two masks that show an index, which both use, in different colours."""

    index: int
    one: tuple[Path, Colour]
    other: tuple[Path, Colour]

    def __str__(self) -> str:
        (path, colour), (another, other) = self.one, self.other
        return f"index {self.index} is {list(colour)} in the palette of {path} and {list(other)} in that of {another}"


def find_conflict(summaries: Sequence[MaskSummary], indices: Sequence[int] = range(256)) -> Conflict | None:
    """The first of these indices that two masks show in different colours; None where there is none."""
    colours = _colours_by_index(summaries)
    for index in indices:
        for one, other in combinations(colours.get(index, {}).items(), 2):
            if not _alike(one[0], other[0]):
                return Conflict(index, *((path, colour) for colour, path in (one, other)))
    return None


def from_palettes(summaries: Sequence[MaskSummary], ignore: tuple[Value, ...] | None, conflict: Conflict) -> Inferred:
    """Classes by the colours of palettes that number them differently; 255 is ignored where it is always one colour."""
    places = _steady_colours(summaries)
    if places is None or any(isinstance(value, int) for value in ignore or ()):
        raise refusal(conflict)
    always_255 = tuple(colour for colour in places if places[colour] == {IGNORE})
    without: tuple[Value, ...] = always_255 if ignore is None else ignore
    colours = sorted({*places} - {*without})
    names = TWO_NAMES if colours == [BLACK, WHITE] else [f"colour {pack(colour):06x}" for colour in colours]
    what = f"{len(colours)} classes, from the colours {shown(map(list, colours))} of {counted(len(summaries), 'mask')}"
    remarks = [f"{what}, whose palettes number them differently ({conflict})"]
    if ignore is None:
        remarks += (f"Index {IGNORE}, which is {list(one)} in the palettes, is ignored." for one in always_255)
    classes = by_colour(dict(zip(names, colours, strict=True)))
    return Inferred(classes, remarks=tuple(remarks), ignore=without or None, numbered=True)


def refusal(conflict: Conflict) -> UserError:
    """The error about masks whose classes are not known, with how to say them."""
    colours = f"first: {list(conflict.one[1])}, second: {list(conflict.other[1])}"
    return UserError(
        f"Palettes differ from mask to mask: {conflict}, so that it is not known whether a class is an index or a "
        f"colour. Give each class its colour in dataset.yaml, as in `classes: {{{colours}, …}}`; or, if an index is "
        "the same class in all masks, whatever its colour, list the names by index: `classes: [background, …]`."
    )


def conflict_with(classes: Classes, masks: Sequence[Path]) -> Conflict | None:
    """As `find_conflict`, among some of the masks of classes that are described by index."""
    values = Counter(classes.table.values())
    alone = [value for value, label in classes.table.items() if isinstance(value, int) and values[label] == 1]
    some = masks[:: -(-len(masks) // LOOKED_AT) or 1]
    if not some or (first := _palette(some[0])) is None:
        return None
    palettes = zip(some, in_threads(_palette, some), strict=True)
    others = [path for path, palette in palettes if palette not in (None, first)][:DECODED]
    found = in_threads(summarise_mask, (some[0], *others)) if others else ()
    return find_conflict([summary for summary in found if isinstance(summary, MaskSummary)], sorted(alone))


def _palette(path: Path) -> tuple[Colour, ...] | None:
    try:
        with open_image(path) as image:
            return palette_of(image)
    except UserError:
        return None  # said when the mask is decoded


def _steady_colours(summaries: Sequence[MaskSummary]) -> dict[Colour, set[int]] | None:
    """The colours that masks use, with the indices of each, where they tell classes apart; else None.

    They do where they are few, and where an index has several since these move from index to index: colours that stay
    at theirs may be those that two programs show one class in.
    """
    found, places = _colours_by_index(summaries), defaultdict[Colour, set[int]](set)
    for index, colours in found.items():
        for colour in colours:
            places[colour].add(index)
    palettes = [(one.palette, one.values) for one in summaries if one.palette is not None]
    merged = any(len({palette[value] for value in values}) < len(values) for palette, values in palettes)
    staying = any(sum(len(places[colour]) == 1 for colour in colours) > 1 for colours in found.values())
    if merged or staying or len(places) > MOST_COLOURS or len(palettes) < len(summaries):
        return None
    return None if any(_alike(*pair) for pair in combinations(places, 2)) else dict(places)


def _colours_by_index(summaries: Sequence[MaskSummary]) -> Mapping[int, dict[Colour, Path]]:
    """The colours in which masks show each index that they use, with the first mask of each."""
    found = defaultdict[int, dict[Colour, Path]](dict)
    for summary in summaries:
        if summary.palette is not None:
            for index in summary.values:
                found[index].setdefault(summary.palette[index], summary.path)
    return found


def _alike(one: Colour, other: Colour) -> bool:
    return max(abs(first - second) for first, second in zip(one, other, strict=True)) <= VERY_NEAR
