"""Names, counts and durations in words, and how they are printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def say(console: Console, text: str) -> None:
    """Prints a text as it is: a path that a user typed is neither markup nor broken into lines."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def listed(names: Iterable[object], most: int | None = 3, joint: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`; of more than `most`, the first ones: `a, b, c and 4 more`."""
    shown = [str(name) for name in names]
    if most is not None and len(shown) > most:
        shown[most:] = [f"{len(shown) - most:,} more"]
    *first, last = shown or [""]
    return f"{', '.join(first)} {joint} {last}" if first else last


def counted(counts: int | Sequence[int], noun: str, plural: str = "", joint: str = " / ") -> str:
    """`1 label`, `1,200 labels`, `4 / 8 labels`; equal counts are said once."""
    different = [counts] if isinstance(counts, int) else list(dict.fromkeys(counts))
    return f"{joint.join(f'{count:,}' for count in different)} {noun if different == [1] else plural or f'{noun}s'}"
