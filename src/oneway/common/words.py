"""Text for messages: counts, durations and lists in words, and untrusted names made safe to print."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

JOINERS = "\u200c\u200d"
"""Characters without a shape that names in some scripts, and emoji, need."""


def composed(name: str) -> str:
    """A name with letters and their accents as one character: macOS and some archives store them as two."""
    return unicodedata.normalize("NFC", name)


def say(console: Console, text: str) -> None:
    """Print a text as it is: a path that a user typed is neither markup nor broken into lines."""
    console.print(visible(text), markup=False, emoji=False, highlight=False, soft_wrap=True)


def visible(text: str, lines: bool = True) -> str:
    r"""A text whose control characters, text directions and undecodable bytes are spelt out, as in `\x1b[2J`.

    Args:
        text: From anywhere. Printed as it is, it could clear a terminal, or read otherwise than it is written.
        lines: Leave ends of lines and tabs as they are; of a single name they are spelt out too.
    """
    if text.isprintable():
        return text
    kept = f"{JOINERS}\n\t" if lines else JOINERS
    return "".join(c if c.isprintable() or c in kept or unicodedata.category(c) == "Zs" else _spell(c) for c in text)


def _spell(character: str) -> str:
    """An escape sequence of Python's; of a byte of a file name that is not UTF-8, that of the byte."""
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def first_line(error: BaseException) -> str:
    """The first line of an error's message that has words, or the name of its kind where it has no message.

    Some libraries raise errors without one, and others append pages about their own state.
    """
    lines = filter(None, map(str.strip, str(error).splitlines()))
    return next(lines, type(error).__name__)


PROGRAM = ["oneway"]
"""What the user starts: a file with a method of its own (`python two_views.py`) puts itself in its place."""


def command(*words: object) -> str:
    """A command to copy into a shell, with names quoted where they need it; for `oneway`, the program in its place."""
    if words[:1] == ("oneway",):
        words = (*PROGRAM, *words[1:])
    return shlex.join(
        f"./{word}" if isinstance(word, Path) and f"{word}".startswith("-") else f"{word}" for word in words
    )


def table_cell(text: str) -> str:
    """A name as a cell of a CSV file; what a spreadsheet would compute gets an apostrophe before it."""
    return f"'{text}" if text.lstrip("'").startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def in_bytes(count: int) -> str:
    """A number of bytes in a unit that suits it, such as `3.2 MB`."""
    size, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 999.95 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{count} bytes" if units[0] == "bytes" else f"{size:.1f} {units[0]}"


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
