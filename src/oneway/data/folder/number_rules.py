"""Which classes the numbers in masks are, where nothing says so.

Four rules decide, in this order:

1. Masks of nothing but 0 and 255 are background and foreground; so are two classes that turn out to be 0 and 1.
2. Where most values occur only in lines between others, borders were smoothed, and the masks are refused.
3. 255 is ignored if the others are small numbers, or count up without wide gaps; elsewhere it is a class. It is one as
   well where no more than one of the others fills an area.
4. Where at least half of the numbers up to the largest occur, all of these are classes. Elsewhere those that occur are,
   unless there are too many of them.

Of masks that all have a palette, numbers are indices: there is no shade among them, and 255 is always ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.common.words import counted
from oneway.data.dataset import Colour
from oneway.data.decode.masks import about_halves
from oneway.data.folder.classes import MOST_CLASSES, Classes, Value, by_index, by_number
from oneway.data.folder.inferred import TWO_NAMES, Inferred, as_one_class, shown
from oneway.data.folder.mask_summary import FEW, MaskSummary, numbers_objects, rare_values

WHITE, WHITE_16 = 255, 65535  # in 8 and in 16 bits
MOST_SCATTERED = 32  # classes whose numbers do not count up; more of them number instances, or are shades
SMALL = 64  # where other numbers are all below, 255 is far from them: it is set apart, as what is ignored is
FILLS = 0.25  # share of a value's pixels from which on they fill areas: 0 in lines one pixel wide, a half in two


def from_numbers(summaries: Sequence[MaskSummary], ignore: tuple[Value, ...] | None) -> Inferred:
    """Classes by the four rules; `ignore` is what stands for no class, None where nobody has said so."""
    found = _numbers_in(summaries)
    if ignore is None and (white := _white_beside_black(found)):
        remark = f"Masks hold 0 and {white} only: taken for background and foreground."
        return Inferred(by_number(dict(zip((0, white), TWO_NAMES, strict=True))), remarks=(remark,))
    pixels, filling = _count(summaries)
    palette = summaries[0].palette if all(summary.palette is not None for summary in summaries) else None
    indexed = palette is not None
    if not indexed:
        _refuse_smoothed(summaries, found, filling)
    ignores_255 = ignore is None and IGNORE in found and _is_set_apart(found, filling, indexed)
    values = sorted(found - ({IGNORE} if ignores_255 else {*(ignore or ())}))
    _refuse_unusable(values, ignore)
    classes = _number_classes(values, indexed)
    strays = {value: path for value, path in rare_values(summaries).items() if value in values}
    remarks = [_origin(classes, values, len(summaries))]
    if ignores_255:
        remarks.append(
            f"Masks hold {IGNORE} as well, in {100 * pixels[IGNORE] / pixels.total():.1f} % of their pixels, which are "
            "ignored. If it is a class, list it in dataset.yaml."
        )
    return Inferred(
        classes=replace(classes, rare=frozenset(strays)),
        colours=_colours(palette, values),
        remarks=tuple(remarks),
        strays=strays,
        objects=numbers_objects(summaries, FEW),
        numbered=classes.names != TWO_NAMES,
    )


def _numbers_in(summaries: Sequence[MaskSummary]) -> set[int]:
    """All values; 1 in masks of one bit is white, if others hold only black and white."""
    grey = {value for summary in summaries if summary.mode != "1" for value in summary.values}
    white = WHITE if grey <= {0, WHITE} else 1
    return grey | {value * white for summary in summaries if summary.mode == "1" for value in summary.values}


def _white_beside_black(found: set[int]) -> int | None:
    """The first rule: the number of white, where there is nothing but black beside it."""
    if WHITE in found and found <= {0, WHITE}:
        return WHITE
    return WHITE_16 if found == {0, WHITE_16} else None


def _count(summaries: Sequence[MaskSummary]) -> tuple[Counter[int], set[int]]:
    """The pixels of each value, and the values that fill areas and are not only in lines."""
    pixels, squares = Counter[int](), Counter[int]()
    for summary in summaries:
        pixels.update(summary.pixels)
        squares.update(summary.squares)
    return pixels, {value for value in pixels if squares[value] >= FILLS * pixels[value]}


def _refuse_smoothed(summaries: Sequence[MaskSummary], found: set[int], filling: set[int]) -> None:
    """The second rule: a border that was smoothed has all shades in between, and most values fill no area."""
    if len(found) <= MOST_SCATTERED and _counts_up(sorted(found - {IGNORE})):
        return  # classes of thin things
    if 2 * len(filling) < len(found):
        worst = max(summaries, key=lambda summary: len(summary.values))
        areas = f"; areas are filled with {shown(sorted(filling))}" if filling else ""
        grey = f" {about_halves('they')}" if max(found) <= IGNORE else ""
        raise UserError(
            f"{worst.path}: holds {shown(sorted(worst.values))}, most of them only along borders{areas}. The masks "
            "are photographs, or were saved with losses or smoothed borders. Export them again as PNG without "
            f"smoothing (anti-aliasing), with one number for each class.{grey}"
        )


def _counts_up(values: Sequence[int]) -> bool:
    """Whether at least half of the numbers from 0 to the largest occur: the others are classes that are rare."""
    return not values or (values[-1] < MOST_CLASSES and 2 * len(values) > values[-1])


def _is_set_apart(found: set[int], filling: set[int], indexed: bool) -> bool:
    """The third rule: whether 255 stands for no class, as the other numbers do not spread over all bytes."""
    others = sorted(found - {IGNORE})
    if indexed:
        return True
    if len(others) > 1 and IGNORE in filling and len(filling) <= 2:
        return False  # black and white, with strays between them
    return _counts_up(others) or others[-1] < SMALL


def _refuse_unusable(values: Sequence[int], ignore: tuple[Value, ...] | None) -> None:
    """Refuse values, in ascending order, that are none, negative, or too many."""
    if not values:
        raise UserError("Every pixel of every mask is ignored. Say in dataset.yaml which values are classes.")
    if values[0] < 0:
        line = [*(value for value in values if value < 0), *(ignore or (IGNORE,))]
        raise UserError(
            f"The masks hold {shown(values)}, and the number of a class is not negative. If those below 0 stand for "
            f"no class, write `ignore: {line}` into dataset.yaml."
        )
    if len(values) > MOST_CLASSES:
        raise UserError(
            f"The masks hold {shown(values)}, and there are at most {MOST_CLASSES} classes: they number instances, or "
            "are photographs. Export them again, with one number for each class."
        )


def _number_classes(values: Sequence[int], indexed: bool) -> Classes:
    """The fourth rule: all numbers up to the largest, or those that occur."""
    if [*values] == [0, 1]:
        return by_index(TWO_NAMES)
    if not indexed and _counts_up(values):
        return by_index(f"class {value}" for value in range(values[-1] + 1))
    if indexed or len(values) <= MOST_SCATTERED:
        return by_number({value: f"class {value}" for value in values})
    raise UserError(
        f"The masks hold {shown(values)}, which are many numbers with gaps: they number instances, or are shades. "
        "Export them again, with one number for each class; or give each number its name in dataset.yaml, as in "
        f"`classes: {{{values[0]}: background, {values[1]}: road}}`."
    )


def _colours(palette: tuple[Colour, ...] | None, values: Sequence[int]) -> tuple[Colour, ...] | None:
    """The colours of classes in a palette, if there is one and all are different."""
    colours = tuple(palette[value] for value in values) if palette else ()
    return colours if len({*colours}) == len(values) else None


def _origin(classes: Classes, values: Sequence[int], masks: int) -> str:
    if classes.names == TWO_NAMES:
        return "Masks hold 0 and 1: taken for background and foreground."
    return f"{len(classes.names)} classes, from the values {shown(values)} of {counted(masks, 'mask')}"


def refuse_objects(summaries: Sequence[MaskSummary]) -> None:
    """Raise a UserError where numbers are those of objects, and all of them may be one class."""
    if numbers_objects(summaries):
        most = max(summaries, key=lambda summary: len(summary.values))
        raise UserError(
            f"{most.path}: holds {shown(sorted(most.values))}, each in one piece, and other masks hold fewer: these "
            "are numbers of objects, and not of classes. If all objects are of one class, write "
            f"`{as_one_class(max(most.values))}` into dataset.yaml; if they are classes, list their names there."
        )
