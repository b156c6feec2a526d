"""Plain words, and how they get on a console."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console


def say(console: Console, text: str) -> None:
    """Prints a text as it is: what a user typed, a path say, is neither markup nor to be broken into lines."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def counted(counts: Sequence[int], noun: str, plural: str = "", joint: str = " / ") -> str:
    """`1 label`, `1,200 labels`, `4 / 8 labels`; equal counts are said once."""
    different = list(dict.fromkeys(counts))
    return f"{joint.join(f'{count:,}' for count in different)} {noun if different == [1] else plural or f'{noun}s'}"
