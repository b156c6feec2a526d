"""Which classes masks seem to have, where nobody says: by looking at all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oneway.data.dataset import IGNORE, Colour, class_name
from oneway.data.decode.masks import Numbers, pack, read_raw, unpack
from oneway.data.folder.classes import MOST_CLASSES, Classes, Value, listed, numbered, painted, parse_colour
from oneway.errors import UserError

LABELMAP = "labelmap.txt"
"""CVAT's table of colours."""
BINARY = {0: "background", 255: "foreground"}
WHITE = 0x010101
"""Times a level of grey, this is the same grey as a colour, 0xRRGGBB."""
SHOWN = 8
"""Values that a message lists."""


@dataclass(frozen=True)
class Look:
    """Which values a mask holds, and how it is stored."""

    mode: str
    coloured: bool
    values: frozenset[int]
    """Numbers, or colours as 0xRRGGBB; of countless ones, enough to tell that they are too many."""

    palette: tuple[Colour, ...] | None


@dataclass(frozen=True)
class Inferred:
    """Classes, and how they came about."""

    classes: Classes
    colours: tuple[Colour, ...] | None = None
    """From the palette of the masks, where they have one."""

    remarks: tuple[str, ...] = ()
    named: bool = True
    """False for colours that no table explains: the names are placeholders, and someone has to look."""


def infer(masks: Iterable[Path], ignore: tuple[Value, ...] | None, table: Classes | None) -> Inferred:
    """The classes of masks; a UserError where they hold something else.

    Args:
        masks: Those that cannot be read are passed over; where some are in colours and some in numbers, the fewer too.
        ignore: Numbers or colours that stand for no class; None for 255, unless masks hold nothing but 0 and 255.
        table: The classes of CVAT's table of colours.
    """
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # Pillow decodes outside the interpreter's lock
        answers = list(threads.map(_look, masks))
    looks = [answer for answer in answers if isinstance(answer, Look)]
    if not looks:
        raise next(answer for answer in answers if isinstance(answer, UserError))
    numbers = [look for look in looks if not look.coloured]
    certainly_numbers = [look for look in numbers if not look.mode.startswith("RGB")]
    if len(looks) - len(numbers) > len(certainly_numbers):
        return _from_colours(looks, ignore or (), table)
    if table is not None:
        return Inferred(_from_table(numbers, table))
    return _from_numbers(numbers, ignore)


def read_labelmap(path: Path) -> Classes:
    """CVAT's table: lines `name:red,green,blue:parts:actions`; a UserError names the line that is something else."""
    colours: dict[str, Colour] = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        for number, line in enumerate(lines, start=1):
            if line.strip() and not line.startswith("#"):
                name, colour, *_ = line.rsplit(":", 3) if line.count(":") >= 3 else line.split(":")
                if name in colours:
                    raise ValueError(f"line {number}: the name {name!r} appears twice")
                colours[class_name(name)] = parse_colour([int(channel) for channel in colour.split(",")])
        return painted(colours)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a table of lines `name:red,green,blue::`, as CVAT writes it ({error}).") from None


def _look(path: Path) -> Look | UserError:
    try:
        raw = read_raw(path)
    except UserError as error:
        return error
    return Look(raw.mode, raw.coloured, frozenset(_distinct(raw.values)), raw.palette)


def _distinct(values: Numbers) -> list[int]:
    """The values that occur; of more than can be classes, enough to tell."""
    if values.min() < 0 or values.max() >= 2**24:
        return np.unique(values)[: 2 * MOST_CLASSES].tolist()
    occurs = np.zeros(int(values.max()) + 1, dtype=np.bool_)
    occurs[values] = True
    return np.flatnonzero(occurs)[: 2 * MOST_CLASSES].tolist()


def _from_colours(looks: Sequence[Look], ignore: tuple[Value, ...], table: Classes | None) -> Inferred:
    if table is not None:
        return Inferred(table)
    painted_in = [look for look in looks if look.mode.startswith("RGB")]
    found = {value if look.coloured else value * WHITE for look in painted_in for value in look.values}
    colours = [unpack(value) for value in sorted(found - {pack(value) for value in ignore if isinstance(value, tuple)})]
    if len(colours) > MOST_CLASSES:
        raise UserError(
            f"The masks have more than {MOST_CLASSES} colours, {_some(colours)}: they are photographs, or were saved "
            "with losses or smoothed borders. Export them again as PNG, with one colour for each class."
        )
    return Inferred(painted({f"class {index}": colour for index, colour in enumerate(colours)}), named=False)


def _from_table(looks: Sequence[Look], table: Classes) -> Classes:
    """The table, if masks are shown in its colours; else its names, in the order of numbers."""
    for look in looks:
        if look.palette is not None:
            shown = {look.palette[value] for value in look.values}
        elif look.mode.startswith("RGB"):
            shown = {unpack(value * WHITE) for value in look.values}
        else:
            return listed(table.names)
        if not shown <= table.table.keys():
            return listed(table.names)
    return table


def _from_numbers(looks: Sequence[Look], ignore: tuple[Value, ...] | None) -> Inferred:
    grey = {value for look in looks if look.mode != "1" for value in look.values}
    white = 255 if grey <= BINARY.keys() else 1  # in masks of one bit
    found = grey | {value * white for look in looks if look.mode == "1" for value in look.values}
    if ignore is None and 255 in found and found <= BINARY.keys():
        return Inferred(numbered(BINARY), remarks=("Masks hold 0 and 255 only: taken for background and foreground.",))
    values = sorted(found - set((IGNORE,) if ignore is None else ignore))
    if not values:
        raise UserError("Every pixel of every mask is ignored. Say in dataset.yaml which values are classes.")
    if len(values) > MOST_CLASSES or values[0] < 0:
        raise UserError(
            f"The masks hold {_some(values)}, and there are at most {MOST_CLASSES} classes: they number instances, or "
            "are photographs. Export them again, with one number for each class."
        )
    palettes = [look.palette for look in looks if look.palette is not None]
    if len(palettes) == len(looks) or values[-1] >= MOST_CLASSES:
        classes = numbered({value: f"class {value}" for value in values})
    else:
        classes = listed(f"class {value}" for value in range(values[-1] + 1))
    colours = tuple(palettes[0][value] for value in values) if len(palettes) == len(looks) else None
    shown = colours if colours and len(set(colours)) == len(colours) else None
    return Inferred(classes, shown, tuple(_remarks(classes, values, len(looks))))


def _remarks(classes: Classes, values: Sequence[int], masks: int) -> Iterable[str]:
    yield (
        f"{len(classes.names)} classes, from the values {_some(values)} of {masks} masks; `oneway check` prints a "
        "dataset.yaml in which they can be named."
    )
    if absent := sorted(classes.table.keys() - set(values), key=str):
        yield f"No mask holds {_some(absent)}; its class cannot be learnt."


def _some(values: Sequence[object]) -> str:
    shown = [str(list(value) if isinstance(value, tuple) else value) for value in values[:SHOWN]]
    return ", ".join(shown) + (f", … ({len(values)} in all)" if len(values) > SHOWN else "")
