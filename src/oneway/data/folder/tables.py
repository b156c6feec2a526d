"""Files that name the classes: CVAT's table of colours, or a list written by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from oneway.common.errors import UserError
from oneway.data.dataset import Colour, class_name
from oneway.data.folder.classes import Classes, by_colour, by_index, parse_colour
from oneway.data.folder.layout import require_inside

TABLES = ("labelmap.txt", "classes.txt")
"""What such a file is called, in lower case; the first that is there is read."""

COLOUR = re.compile(r"#[0-9a-fA-F]{6}$|[\[(]?(?<![\d.-])(\d+)[\s,;]+(\d+)[\s,;]+(\d+)[\])]?$")
"""At the end of a line, `60,180,75`, `60 180 75`, `[60, 180, 75]` or `#3cb44b`."""


@dataclass(frozen=True)
class Table:
    """The classes that a file names, by their colours or, where it has none, in order of number."""

    path: Path
    classes: Classes


def find_table(root: Path) -> Table | None:
    """The table in a folder, if there is one; a UserError names the line that cannot be understood."""
    present = {path.name.lower(): path for path in root.iterdir() if path.name.lower() in TABLES}
    files = [require_inside(present[name], root) for name in TABLES if name in present]
    return next((Table(path, _read(path)) for path in files if path.is_file()), None)


def _read(path: Path) -> Classes:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
        entries = {number: _entry(line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")}
        if all(colour is None for _, colour in entries.values()):
            return by_index(name for name, _ in entries.values())
        colours: dict[str, Colour] = {}
        for number, (name, colour) in entries.items():
            if name in colours:
                raise ValueError(f"line {number}: the name {name!r} appears twice")
            if colour is None:
                raise ValueError(f"line {number} has no colour, as others have: {name!r}")
            colours[name] = colour
        return by_colour(colours)
    except UnicodeDecodeError:
        raise UserError(f"{path}: has characters in another encoding than UTF-8. Save it as UTF-8.") from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: not a table of lines `name: red,green,blue`, nor a list of names, one on each line ({error}). "
            "Correct it, or call it something else if it is not meant to name the classes."
        ) from None


def _entry(line: str) -> tuple[str, Colour | None]:
    """The name on a line, and its colour if it has one; CVAT appends `:parts:actions` to these."""
    for text in (line.rstrip(":"), line.rsplit(":", 2)[0]):
        if found := COLOUR.search(text):
            channels = [int(channel) for channel in found.groups() if channel is not None]
            return class_name(text[: found.start()].strip(" \t:=,;")), parse_colour(channels or found.group())
    return class_name(line), None
