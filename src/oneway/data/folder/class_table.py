"""Files that name the classes of masks, by their colours or in order of number: CVAT's table, or a plain list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from oneway.common.bounded import read_bounded
from oneway.common.errors import UserError
from oneway.data.dataset import Colour, class_name
from oneway.data.folder.classes import Classes, Value, by_colour, by_index, by_number, parse_colour
from oneway.data.folder.walk import require_inside

ADE20K = "objectinfo150.txt"
TABLES = ("labelmap.txt", "classes.txt", "class_names.txt", "label_colors.txt", "_classes.csv", ADE20K)
"""Files that name the classes, in lower case: CVAT's table of colours, or a list; the first that is there is read."""

COLOUR = re.compile(r"#[0-9a-fA-F]{6}$|[\[(]?(?<![\d.-])(\d+)[\s,;]+(\d+)[\s,;]+(\d+)[\])]?$")
"""At the end of a line of such a file: `60,180,75`, `60 180 75`, `[60, 180, 75]` or `#3cb44b`."""

COLOUR_FIRST = re.compile(r"(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\d{1,3})[\s,]+([^\d\s].*)")
"""A line on which the colour comes first, as in CamVid's table."""

HEADER = re.compile(r"(?i)(name|class|label)\w*[\s,;:]+(r|red)[\s,;]+(g|green)[\s,;]+(b|blue)")
"""The first line of such a file, where it says what the others hold."""

MOST_BYTES = 2**20  # of such a file


@dataclass(frozen=True)
class Table:
    """The classes that a file names, by their colours or, where it has none, in order of number."""

    path: Path
    classes: Classes


def find_table(root: Path, folders: Iterable[str]) -> Table | None:
    """The table in a folder, or the first of some in it, if there is one; a UserError names a line that is none."""
    for folder in folders:
        present = {path.name.lower(): path for path in (root / folder).iterdir() if path.name.lower() in TABLES}
        files = [require_inside(present[name], root) for name in TABLES if name in present]
        if table := next((Table(path, _read_table(path)) for path in files if path.is_file()), None):
            return table
    return None


def find_legend(root: Path, colours: Iterable[Value]) -> Table | None:
    """A file in a folder that has names for these colours, and is not called as tables are."""
    for path in sorted(path for path in root.iterdir() if path.suffix.lower() in (".csv", ".txt")):
        try:
            classes = _read_table(path) if path.is_file() and not path.is_symlink() else None
        except UserError:
            continue
        if classes is not None and {*colours} <= classes.table.keys():
            return Table(path, classes)
    return None


def _read_table(path: Path) -> Classes:
    try:
        lines = read_bounded(path, MOST_BYTES).decode("utf-8-sig").splitlines()
        return _parse(path.name.lower(), [line.strip() for line in lines])
    except UnicodeDecodeError:
        raise UserError(f"{path}: has characters in another encoding than UTF-8. Save it as UTF-8.") from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: not a table of lines `name: red,green,blue`, nor a list of names, one on each line ({error}). "
            "Correct it, or call it something else if it is not meant to name the classes."
        ) from None


def _parse(name: str, lines: Sequence[str]) -> Classes:
    """The classes in the lines of a file of this name, in lower case; a ValueError says what is wrong."""
    if name == ADE20K:
        return by_number(ade20k_names(lines))
    if lines and HEADER.fullmatch(lines[0]):
        lines = lines[1:]
    if name.endswith(".csv") and not any(COLOUR.search(line) for line in lines):
        rows = [line.partition(",") for line in lines[1:] if line]  # Roboflow's: a number and a name
        return by_number(dict(sorted((int(number), class_name(title.strip())) for number, _, title in rows)))
    entries = {number: _entry(line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")}
    if all(colour is None for _, colour in entries.values()):
        return by_index(title for title, _ in entries.values())
    colours: dict[str, Colour] = {}
    for number, (title, colour) in entries.items():
        if title in colours:
            raise ValueError(f"line {number}: the name {title!r} appears twice")
        if colour is None:
            raise ValueError(f"line {number} has no colour, as others have: {title!r}")
        colours[title] = colour
    return by_colour(colours)


def ade20k_names(lines: Sequence[str]) -> dict[int, str]:
    """ADE20K's table: the first name of each class by its number, with the number where an earlier one has the name."""
    names: dict[int, str] = {}
    for number, *_, synonyms in (line.split("\t") for line in lines[1:] if line):
        name = class_name(re.split("[,;]", synonyms)[0])
        names[int(number)] = f"{name} ({number})" if name in names.values() else name
    return names


def _entry(line: str) -> tuple[str, Colour | None]:
    """The name on a line, and its colour if it has one; CVAT appends `:parts:actions` to these."""
    if first := COLOUR_FIRST.match(line):
        red, green, blue, name = first.groups()
        return class_name(name), parse_colour([int(red), int(green), int(blue)])
    for text in (line.rstrip(":"), line.rsplit(":", 2)[0]):
        if found := COLOUR.search(text):
            channels = [int(channel) for channel in found.groups() if channel is not None]
            return class_name(text[: found.start()].strip(" \t:=,;")), parse_colour(channels or found.group())
    return class_name(line), None
