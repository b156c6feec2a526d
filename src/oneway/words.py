"""Plain words on a console."""

from __future__ import annotations

from rich.console import Console


def say(console: Console, text: str) -> None:
    """Prints a text as it is: what a user typed, a path say, is neither markup nor to be broken into lines."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
