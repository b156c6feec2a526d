"""Which classes masks have, where no description says it: inferred from the values of all masks, and from a table.

The first of these rules that applies decides:

1. Where masks of two codings meet, they are refused (`two_codings.py`).
2. Where most masks are painted in colours, these are the classes; a table of colours names them, if there is one.
3. Where there is a table, it names the numbers: by the colours they are shown in, or in order (`by_table.py`).
4. Where numbers are those of objects, masks are refused.
5. Where palettes number colours differently from mask to mask, colours are the classes, or masks are refused
   (`palettes.py`).
6. Numbers are the classes, or some of them (`number_rules.py`).

Before all of them, a number below 0 is left out, if there is a single one: it stands for no class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.common.threads import in_threads
from oneway.data.dataset import Colour
from oneway.data.decode.masks import about_alpha, alpha_varies, pack, unpack
from oneway.data.folder.by_table import by_table, origin
from oneway.data.folder.class_table import Table
from oneway.data.folder.classes import MOST_CLASSES, Value, by_colour
from oneway.data.folder.inferred import Inferred, shown
from oneway.data.folder.mask_summary import MaskSummary, rare_values, summarise_mask
from oneway.data.folder.number_rules import from_numbers, refuse_objects
from oneway.data.folder.palettes import find_conflict, from_palettes
from oneway.data.folder.two_codings import refuse_two_codings

GREY = 0x010101  # times a level of grey, this is the same grey as a colour, 0xRRGGBB


def infer(masks: Iterable[Path], ignore: tuple[Value, ...] | None, table: Table | None) -> Inferred:
    """The classes of masks; a UserError where they hold something else.

    Args:
        masks: Those that cannot be read are left out; where some have colours and some numbers, so are the fewer.
        ignore: Numbers or colours that stand for no class; None for 255, where that is set apart from the others.
        table: Names of the classes, perhaps with colours.
    """
    answers = [*in_threads(summarise_mask, masks)]
    summaries = [answer for answer in answers if isinstance(answer, MaskSummary)]
    if not summaries:
        raise next(answer for answer in answers if isinstance(answer, UserError))
    coloured = table.classes.table if table is not None and table.classes.coloured else {}
    colours = frozenset(value for value in (*coloured, *(ignore or ())) if isinstance(value, tuple))
    negative = {value for summary in summaries for value in summary.values if value < 0}
    if ignore is None and len(negative) == 1:
        positive = [replace(summary, values=summary.values - negative) for summary in summaries]
        return _with_nodata(_infer(positive, ignore, table, colours), *negative)
    return _infer(summaries, ignore, table, colours)


def _with_nodata(inferred: Inferred, value: int) -> Inferred:
    """Classes of masks that hold a negative number as well, as GIS programs write where there are no data."""
    if inferred.classes.coloured:
        return inferred
    usual = () if IGNORE in inferred.classes.table else (IGNORE,)
    remark = f"Masks hold {value} as well, which is negative: it stands for no class, and is ignored."
    return replace(inferred, ignore=(value, *(inferred.ignore or usual)), remarks=(*inferred.remarks, remark))


def _infer(
    summaries: Sequence[MaskSummary],
    ignore: tuple[Value, ...] | None,
    table: Table | None,
    colours: frozenset[Colour],
) -> Inferred:
    """As `infer`, of masks that could be read; `colours` are those that stand for classes, or are ignored."""
    refuse_two_codings(summaries, colours, IGNORE in (ignore or ()))
    numbers = [summary for summary in summaries if not summary.coloured]
    certainly_numbers = [summary for summary in numbers if not summary.mode.startswith("RGB")]
    if len(summaries) - len(numbers) > len(certainly_numbers):
        return _from_colours(summaries, ignore or (), table)
    if table is not None:
        return by_table(numbers, ignore, table)
    refuse_objects(numbers)
    if conflict := find_conflict(numbers):
        return from_palettes(numbers, ignore, conflict)
    return from_numbers(numbers, ignore)


def _from_colours(summaries: Sequence[MaskSummary], ignore: tuple[Value, ...], table: Table | None) -> Inferred:
    if table is not None and table.classes.coloured:
        return Inferred(table.classes, remarks=(origin(table),))
    painted_in = [summary for summary in summaries if summary.mode.startswith("RGB")]
    found = {value if summary.coloured else value * GREY for summary in painted_in for value in summary.values}
    colours = [unpack(value) for value in sorted(found - {pack(value) for value in ignore if isinstance(value, tuple)})]
    if len(colours) > MOST_CLASSES:
        raise UserError(
            f"The masks have more than {MOST_CLASSES} colours, {shown(map(list, colours))}: they are photographs, "
            "or were saved with losses or smoothed borders. Export them again as PNG, with one colour for each class."
        )
    hint = f"{table.path.name} names classes without colours: write each as `name: red,green,blue`." if table else None
    if len(colours) == 1 and (varying := [one.path for one in painted_in if alpha_varies(one.path)]):
        raise UserError(f"Every pixel of every mask has the colour {list(colours[0])}, and {about_alpha(varying[0])}.")
    classes = by_colour({f"class {index}": colour for index, colour in enumerate(colours)})
    classes = replace(classes, rare=frozenset(map(unpack, rare_values(painted_in, GREY))).intersection(colours))
    return Inferred(classes, remarks=(hint,) if hint else (), named=False)
