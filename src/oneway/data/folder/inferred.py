"""What is known of classes that no description gives, and how it is said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from oneway.common.terms import IGNORE
from oneway.common.words import listed
from oneway.data.dataset import Colour
from oneway.data.folder.classes import Classes, Value

TWO_NAMES = ("background", "foreground")  # of two classes that are 0 and 1, or black and white

SHOWN = 8  # values that a message lists


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
    objects: bool = False  # whether the numbers may be those of objects, few as they are
    numbered: bool = False  # whether the names are made of numbers: they serve, and the user may have better ones


def as_one_class(largest: int = IGNORE) -> str:
    """The line that makes all numbers of objects one class."""
    return f"classes: {{0: background, 1-{max(IGNORE, largest)}: object}}"


def shown(values: Iterable[object]) -> str:
    """Values in words; numbers without a gap by the first and the last."""
    values = list(values)
    numbers = [value for value in values if isinstance(value, int)]
    if len(values) > 3 and numbers == values == [*range(numbers[0], numbers[-1] + 1)]:
        return f"{numbers[0]} to {numbers[-1]}"
    return listed(values, SHOWN)
