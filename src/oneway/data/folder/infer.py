"""Which classes masks have, where no description says it: inferred from the values of all masks, and from a table.

Numbers are taken for classes by four rules, in this order:

1. Masks of nothing but 0 and 255 are background and foreground; so are two classes that turn out to be 0 and 1.
2. Where most values occur only in lines between others, borders were smoothed, and the masks are refused.
3. 255 is ignored if the others are small numbers, or count up without wide gaps; elsewhere it is a class. It is one as
   well where no more than one of the others fills an area.
4. Where at least half of the numbers up to the largest occur, all of these are classes. Elsewhere those that occur are,
   unless there are too many of them.

Indices into palettes that differ from mask to mask are no such numbers: colours are the classes there, or it is not
known what is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.common.threads import in_threads
from oneway.common.words import counted, listed
from oneway.data.dataset import Colour
from oneway.data.decode.masks import about_alpha, alpha_varies, pack, unpack
from oneway.data.folder.class_table import ADE20K, Table
from oneway.data.folder.classes import MOST_CLASSES, Classes, Value, by_colour, by_index, by_number
from oneway.data.folder.mask_summary import (
    MaskSummary,
    numbers_objects,
    rare_values,
    summarise_mask,
)
from oneway.data.folder.palettes import Conflict, find_conflict, refusal, steady_colours
from oneway.data.folder.two_codings import refuse_two_codings

BINARY = {0: "background", 255: "foreground"}
WHITE_16 = {0: "background", 65535: "foreground"}  # the same in 16 bits
TWO = {0: "background", 1: "foreground"}
BLACK, WHITE_COLOUR = (0, 0, 0), (255, 255, 255)
WHITE = 0x010101  # times a level of grey, this is the same grey as a colour, 0xRRGGBB
SHOWN = 8  # values that a message lists
MOST_SCATTERED = 32  # classes whose numbers do not count up; more of them number instances, or are shades
SMALL = 64  # where other numbers are all below, 255 is far from them: it is set apart, as what is ignored is
FILLS = 0.25  # share of a value's pixels from which on they fill areas: 0 in lines one pixel wide, a half in two


@dataclass(frozen=True)
class Inferred:
    """Classes, and how they were inferred."""

    classes: Classes
    colours: tuple[Colour, ...] | None = None  # from the palette of the masks, where they have one
    remarks: tuple[str, ...] = ()  # first where the classes are from, then what else was decided
    ignore: tuple[Value, ...] | None = None  # what stands for no class, where the table says so
    named: bool = True  # False for colours that no table explains: the names are placeholders, or of a legend
    legend: str = ""  # a file that names these colours, though its own name is not that of a table
    strays: Mapping[int, Path] = field(default_factory=dict)  # numbers that hardly occur, and the only mask of each
    numbered: bool = False  # whether the names are made of numbers: they serve, and the user may have better ones


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
    if ignore is None and len(negative := {value for one in summaries for value in one.values if value < 0}) == 1:
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
    conflict = find_conflict(numbers)
    if table is None:
        _refuse_objects(numbers)
        return _from_palettes(numbers, ignore, conflict) if conflict else _from_numbers(numbers, ignore)
    if conflict and not (table.classes.coloured and _from_table(numbers, table.classes).coloured):
        raise refusal(conflict)
    if table.path.name.lower() == ADE20K and ignore is None:
        return Inferred(table.classes, remarks=(_source(table), "0 stands for no class, and is ignored."), ignore=(0,))
    if table.classes.coloured:
        return Inferred(_from_table(numbers, table.classes), remarks=(_source(table),))
    return _renamed(_from_numbers(numbers, ignore), table)


def _from_colours(summaries: Sequence[MaskSummary], ignore: tuple[Value, ...], table: Table | None) -> Inferred:
    if table is not None and table.classes.coloured:
        return Inferred(table.classes, remarks=(_source(table),))
    painted_in = [summary for summary in summaries if summary.mode.startswith("RGB")]
    found = {value if summary.coloured else value * WHITE for summary in painted_in for value in summary.values}
    colours = [unpack(value) for value in sorted(found - {pack(value) for value in ignore if isinstance(value, tuple)})]
    if len(colours) > MOST_CLASSES:
        raise UserError(
            f"The masks have more than {MOST_CLASSES} colours, {_shown(map(list, colours))}: they are photographs, "
            "or were saved with losses or smoothed borders. Export them again as PNG, with one colour for each class."
        )
    hint = f"{table.path.name} names classes without colours: write each as `name: red,green,blue`." if table else None
    if len(colours) == 1 and (varying := [one.path for one in painted_in if alpha_varies(one.path)]):
        raise UserError(f"Every pixel of every mask has the colour {list(colours[0])}, and {about_alpha(varying[0])}.")
    classes = by_colour({f"class {index}": colour for index, colour in enumerate(colours)})
    classes = replace(classes, rare=frozenset(map(unpack, rare_values(painted_in, WHITE))).intersection(colours))
    return Inferred(classes, remarks=(hint,) if hint else (), named=False)


def _from_palettes(summaries: Sequence[MaskSummary], ignore: tuple[Value, ...] | None, conflict: Conflict) -> Inferred:
    """Classes by the colours of palettes that number them differently; 255 is ignored where it is always one colour."""
    places = steady_colours(summaries)
    if places is None or any(isinstance(value, int) for value in ignore or ()):
        raise refusal(conflict)
    always_255 = tuple(colour for colour in places if places[colour] == {IGNORE})
    without: tuple[Value, ...] = always_255 if ignore is None else ignore
    colours = sorted({*places} - {*without})
    names = [*TWO.values()] if colours == [BLACK, WHITE_COLOUR] else [f"colour {pack(one):06x}" for one in colours]
    what = f"{len(colours)} classes, from the colours {_shown(map(list, colours))} of {counted(len(summaries), 'mask')}"
    remarks = [f"{what}, whose palettes number them differently ({conflict})"]
    if ignore is None:
        remarks += (f"Index {IGNORE}, which is {list(one)} in the palettes, is ignored." for one in always_255)
    classes = by_colour(dict(zip(names, colours, strict=True)))
    return Inferred(classes, None, tuple(remarks), without or None, numbered=True)


def _from_table(summaries: Sequence[MaskSummary], table: Classes) -> Classes:
    """The table, if masks are shown in its colours, or in its greys; else its names, in the order of numbers."""
    plain = [summary for summary in summaries if summary.palette is None and not summary.mode.startswith("RGB")]
    if plain:
        held = {value * (255 if summary.mode == "1" else 1) for summary in plain for value in summary.values}
        entries = [(value, table.names[index]) for value, index in table.table.items() if isinstance(value, tuple)]
        greys = {value[0]: name for value, name in entries if len({*value}) == 1}
        return by_number(greys) if len(greys) == len(entries) and held <= greys.keys() else by_index(table.names)
    for summary in summaries:
        colours = summary.palette or [unpack(level * WHITE) for level in range(256)]
        if not {colours[value] for value in summary.values} <= table.table.keys():
            return by_index(table.names)
    return table


def _renamed(inferred: Inferred, table: Table) -> Inferred:
    """What was inferred, with the names of a table: one for each class, or for more numbers; else a UserError."""
    names, values = table.classes.names, [*inferred.classes.table]
    remarks = (_source(table), *inferred.remarks[1:])
    if len(names) == len(inferred.classes.names):
        return replace(inferred, classes=Classes(names, inferred.classes.table), remarks=remarks, numbered=False)
    if set(values) <= table.classes.table.keys():
        return Inferred(table.classes, remarks=remarks)
    raise UserError(
        f"{table.path}: the number of names in it, {len(names)}, is not that of classes in the masks, {len(values)}: "
        f"{_shown(values)}. Write a name on each line, in the order of these numbers, or call the file something else."
    )


def _source(table: Table) -> str:
    return f"Classes are those of {table.path.name}."


def _from_numbers(summaries: Sequence[MaskSummary], ignore: tuple[Value, ...] | None) -> Inferred:
    """Classes by the four rules above."""
    found = _numbers_in(summaries)
    if ignore is None and 255 in found and found <= BINARY.keys():
        return Inferred(by_number(BINARY), remarks=("Masks hold 0 and 255 only: taken for background and foreground.",))
    if ignore is None and found == WHITE_16.keys():
        return Inferred(
            by_number(WHITE_16), remarks=("Masks hold 0 and 65535 only: taken for background and foreground.",)
        )
    palettes = [summary.palette for summary in summaries if summary.palette is not None]
    indexed = len(palettes) == len(summaries)
    pixels, squares = Counter[int](), Counter[int]()
    for summary in summaries:
        pixels.update(summary.pixels)
        squares.update(summary.squares)
    filling = {value for value in pixels if squares[value] >= FILLS * pixels[value]}  # areas, and not only lines
    if not indexed:
        _refuse_smoothed(summaries, found, filling)
    values = sorted(found - set(_set_apart(found, filling, indexed) if ignore is None else ignore))
    _refuse_unusable(values, ignore)
    classes = _number_classes(values, indexed)
    colours = tuple(palettes[0][value] for value in values) if indexed else None
    shown = colours if colours and len(set(colours)) == len(colours) else None
    remarks = ["Masks hold 0 and 1: taken for background and foreground."]
    if values != [*TWO]:
        remarks = [
            f"{len(classes.names)} classes, from the values {_shown(values)} of {counted(len(summaries), 'mask')}"
        ]
    if ignore is None and IGNORE in found - {*values}:
        remarks.append(
            f"Masks hold {IGNORE} as well, in {100 * pixels[IGNORE] / pixels.total():.1f} % of their pixels, which are "
            "ignored. If it is a class, list it in dataset.yaml."
        )
    strays = {value: path for value, path in rare_values(summaries).items() if value in values}
    classes = replace(classes, rare=frozenset(strays))
    return Inferred(classes, shown, tuple(remarks), strays=strays, numbered=values != [*TWO])


def _numbers_in(summaries: Sequence[MaskSummary]) -> set[int]:
    """All values; 1 in masks of one bit is white, if others hold only black and white."""
    grey = {value for summary in summaries if summary.mode != "1" for value in summary.values}
    white = 255 if grey <= BINARY.keys() else 1
    return grey | {value * white for summary in summaries if summary.mode == "1" for value in summary.values}


def _refuse_unusable(values: Sequence[int], ignore: tuple[Value, ...] | None) -> None:
    """Refuse values, in ascending order, that are none, negative, or too many."""
    if not values:
        raise UserError("Every pixel of every mask is ignored. Say in dataset.yaml which values are classes.")
    if values[0] < 0:
        line = [*(value for value in values if value < 0), *(ignore or (IGNORE,))]
        raise UserError(
            f"The masks hold {_shown(values)}, and the number of a class is not negative. If those below 0 stand for "
            f"no class, write `ignore: {line}` into dataset.yaml."
        )
    if len(values) > MOST_CLASSES:
        raise UserError(
            f"The masks hold {_shown(values)}, and there are at most {MOST_CLASSES} classes: they number instances, or "
            "are photographs. Export them again, with one number for each class."
        )


def _number_classes(values: Sequence[int], indexed: bool) -> Classes:
    """The fourth rule: all numbers up to the largest, or those that occur."""
    if values == [*TWO]:
        return by_number(TWO)
    if not indexed and _counts_up(values):
        return by_index(f"class {value}" for value in range(values[-1] + 1))
    if indexed or len(values) <= MOST_SCATTERED:
        return by_number({value: f"class {value}" for value in values})
    raise UserError(
        f"The masks hold {_shown(values)}, which are many numbers with gaps: they number instances, or are shades. "
        "Export them again, with one number for each class; or give each number its name in dataset.yaml, as in "
        f"`classes: {{{values[0]}: background, {values[1]}: road}}`."
    )


def _counts_up(values: Sequence[int]) -> bool:
    """Whether at least half of the numbers from 0 to the largest occur: the others are classes that are rare."""
    return not values or (values[-1] < MOST_CLASSES and 2 * len(values) > values[-1])


def _set_apart(found: set[int], filling: set[int], indexed: bool) -> tuple[int, ...]:
    """What is ignored by default: 255, if the other numbers do not spread over all bytes, as shades do."""
    others = sorted(found - {IGNORE})
    strays = len(others) > 1 and IGNORE in filling and len(filling) <= 2  # among black and white
    return (IGNORE,) if indexed or (not strays and (_counts_up(others) or others[-1] < SMALL)) else ()


def _refuse_objects(summaries: Sequence[MaskSummary]) -> None:
    """Raise a UserError where numbers are those of objects, and all of them may be one class."""
    if numbers_objects(summaries):
        most = max(summaries, key=lambda summary: len(summary.values))
        raise UserError(
            f"{most.path}: holds {_shown(sorted(most.values))}, each in one piece, and other masks hold fewer: these "
            "are numbers of objects, and not of classes. If all objects are of one class, write "
            f"`classes: {{0: background, 1-{max(IGNORE, *most.values)}: object}}` into dataset.yaml; if they are "
            "classes, list their names there."
        )


def _refuse_smoothed(summaries: Sequence[MaskSummary], found: set[int], filling: set[int]) -> None:
    """Raise a UserError where most values fill no area: a border that was smoothed has all shades in between."""
    if len(found) <= MOST_SCATTERED and _counts_up(sorted(found - {IGNORE})):
        return  # classes of thin things
    if 2 * len(filling) < len(found):
        worst = max(summaries, key=lambda summary: len(summary.values))
        areas = f"; areas are filled with {_shown(sorted(filling))}" if filling else ""
        raise UserError(
            f"{worst.path}: holds {_shown(sorted(worst.values))}, most of them only along borders{areas}. The masks "
            "are photographs, or were saved with losses or smoothed borders. Export them again as PNG without "
            "smoothing (anti-aliasing), with one number for each class."
        )


def _shown(values: Iterable[object]) -> str:
    """Values in words; numbers without a gap by the first and the last."""
    values = list(values)
    numbers = [value for value in values if isinstance(value, int)]
    if len(values) > 3 and numbers == values == [*range(numbers[0], numbers[-1] + 1)]:
        return f"{numbers[0]} to {numbers[-1]}"
    return listed(values, SHOWN)
