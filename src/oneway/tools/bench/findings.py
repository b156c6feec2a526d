"""What a benchmark is asked for, and what it finds: tables for people, the same numbers for machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from rich import box
from rich.table import Table

from oneway.common.errors import unknown

NOTHING = "–"
Say = Callable[[str], None]
Result = dict[str, Any]
"""What was measured of one case, as JSON has it."""

Named = TypeVar("Named")


@dataclass(frozen=True)
class Options:
    """The options of all benchmarks; each uses those that concern it."""

    device: torch.device
    cases: tuple[str, ...] = ()
    """Names of the cases to measure; empty: all."""

    profile: bool = False
    """Adds where the time of a step goes, and the least it could be."""

    figure: Path | None = None
    """Where the figure of `memory` is drawn; the file's ending decides the format."""

    runtimes: tuple[str, ...] = ()
    """With `infer`: runtimes to compare on the CPU, by the names of `RUNTIMES`; empty: PyTorch alone, on the device."""

    @property
    def small(self) -> bool:
        """Whether sizes are those of a demonstration."""
        return self.device.type == "cpu" and not self.runtimes

    def choose(self, cases: dict[str, Named]) -> dict[str, Named]:
        """The cases asked for, in the order of the table."""
        for name in self.cases:
            if name not in cases:
                raise unknown("case", name, cases)
        return {name: case for name, case in cases.items() if not self.cases or name in self.cases}


@dataclass(frozen=True)
class Findings:
    """What a benchmark found."""

    tables: list[Table]
    results: Any
    """The same numbers and more, as JSON."""

    notes: list[str] = field(default_factory=list)
    """What a reader of the tables should know."""


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str] | None], texts: int = 1) -> Table:
    """A table whose first columns hold text and whose others hold numbers; None among the rows draws a line.

    Columns in which nothing is known are left out.
    """
    rows = list(rows)
    known = [any(row and row[column] != NOTHING for row in rows) for column in range(len(headings))]
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for index, heading in enumerate(headings):
        if known[index]:
            text = index < texts
            longest = max(len(row[index]) for row in rows if row)  # in a narrow window headings wrap, numbers never
            justify: Literal["left", "right"] = "left" if text else "right"
            made.add_column(heading, justify=justify, no_wrap=text, min_width=longest, overflow="fold")
    for row in rows:
        if row is None:
            made.add_section()
        else:
            made.add_row(*compress(row, known))
    return made


def table_of(title: str, results: Iterable[Result], columns: Mapping[str, str], texts: int = 1) -> Table:
    """A row for each result: below a heading is a format of its values, such as `{seconds:.1f}`."""
    return table(title, [*columns], [[_filled(text, result) for text in columns.values()] for result in results], texts)


def _filled(text: str, values: Result) -> str:
    """A format filled with the values that it names; a dash where one of them is None."""
    try:
        return text.format_map(values)
    except TypeError:
        return NOTHING


def number(value: float | None, decimals: int = 1) -> str:
    """A measured value; a dash where there is none."""
    return NOTHING if value is None else f"{value:,.{decimals}f}"


def times(value: float | None) -> str:
    """A ratio as text."""
    return NOTHING if value is None else f"{value:.2f}×"


def ratio(value: float | None, baseline: float | None) -> float | None:
    """The ratio of two values; None where either is unknown."""
    return None if value is None or not baseline else value / baseline
