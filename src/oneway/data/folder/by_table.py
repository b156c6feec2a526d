"""Classes of masks of numbers, where a table names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oneway.common.errors import UserError
from oneway.data.dataset import Colour
from oneway.data.folder.class_table import ADE20K, Table
from oneway.data.folder.classes import Classes, Value, by_index, by_number
from oneway.data.folder.inferred import Inferred, shown
from oneway.data.folder.mask_summary import MaskSummary
from oneway.data.folder.number_rules import from_numbers
from oneway.data.folder.palettes import find_conflict, refusal


def by_table(summaries: Sequence[MaskSummary], ignore: tuple[Value, ...] | None, table: Table) -> Inferred:
    """The classes of a table: by its colours where masks are shown in them, else by number.

    Raises:
        UserError: Palettes number colours differently, and the table has others; or it has too few names, or too many.
    """
    classes = _as_shown(summaries, table.classes) if table.classes.coloured else None
    if (conflict := find_conflict(summaries)) and not (classes and classes.coloured):
        raise refusal(conflict)
    if table.path.name.lower() == ADE20K and ignore is None:
        return Inferred(table.classes, remarks=(origin(table), "0 stands for no class, and is ignored."), ignore=(0,))
    if classes is not None:
        return Inferred(classes, remarks=(origin(table),))
    return _renamed(from_numbers(summaries, ignore), table)


def origin(table: Table) -> str:
    """Where classes are from."""
    return f"Classes are those of {table.path.name}."


def _as_shown(summaries: Sequence[MaskSummary], table: Classes) -> Classes:
    """The table, if masks are shown in its colours, or in its greys; else its names, in the order of numbers."""
    in_order = by_index(table.names)
    plain = [summary for summary in summaries if summary.palette is None and not summary.mode.startswith("RGB")]
    if not plain:
        return table if set[Colour]().union(*map(_colours_in, summaries)) <= table.table.keys() else in_order
    held = {value * (255 if summary.mode == "1" else 1) for summary in plain for value in summary.values}
    colours = ((colour, table.names[index]) for colour, index in table.table.items() if isinstance(colour, tuple))
    greys = {colour[0]: name for colour, name in colours if len({*colour}) == 1}
    return by_number(greys) if len(greys) == len(table.table) and held <= greys.keys() else in_order


def _colours_in(summary: MaskSummary) -> set[Colour]:
    """The colours of a mask with a palette, or of greys that are stored as colours."""
    colours = summary.palette or [(level, level, level) for level in range(256)]
    return {colours[value] for value in summary.values}


def _renamed(inferred: Inferred, table: Table) -> Inferred:
    """What was inferred, with the names of a table: one for each class, or for more numbers; else a UserError."""
    names, values = table.classes.names, [*inferred.classes.table]
    remarks = (origin(table), *inferred.remarks[1:])
    if len(names) == len(inferred.classes.names):
        return replace(inferred, classes=Classes(names, inferred.classes.table), remarks=remarks, numbered=False)
    if set(values) <= table.classes.table.keys():
        return Inferred(table.classes, remarks=remarks)
    raise UserError(
        f"{table.path}: the number of names in it, {len(names)}, is not that of classes in the masks, {len(values)}: "
        f"{shown(values)}. Write a name on each line, in the order of these numbers, or call the file something else."
    )
