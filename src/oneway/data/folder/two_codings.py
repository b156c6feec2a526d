"""Masks of two codings in one folder, which are refused.

Numbers or colours may stand for other classes in some masks than in those beside them: two codings in one folder. They
meet where masks of another origin, say predictions of class indices, are put among the masks of a folder. Read by one
coding, the others would train wrongly without an error: black and white among 0 and 1 would all be ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.common.words import listed
from oneway.data.dataset import Colour
from oneway.data.folder.mask_summary import MaskSummary

SHOWN = 3  # files of each coding that a message names
VALUES = 8  # values that it lists

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
