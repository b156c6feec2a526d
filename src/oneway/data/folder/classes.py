"""The classes of a data set: their names, what stands for them in masks, and the colours they are shown in."""

from __future__ import annotations

import colorsys
import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oneway.common.terms import IGNORE
from oneway.data.dataset import Colour, class_name

MOST_CLASSES = IGNORE  # class indices are bytes below
SHADES = ((0.65, 0.95), (0.85, 0.7), (0.45, 0.85))  # saturation and brightness of eight hues each
SHOWN = 80  # characters of what is wrong, up to the end of a word
Value = int | Colour  # what stands for a class in masks


@dataclass(frozen=True)
class Classes:
    """Names, in order of class index, and the class index of each value that stands for one.

    Raises:
        ValueError: Two have the same name, or there are too many.
    """

    names: tuple[str, ...]
    table: dict[Value, int]
    rare: frozenset[Value] = frozenset()  # values that hardly occur, among classes that were inferred

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"the name {Counter(self.names).most_common(1)[0][0]!r} appears twice")
        if len(self.names) > MOST_CLASSES:
            raise ValueError(f"{len(self.names)} classes are too many; the most is {MOST_CLASSES}")

    @property
    def coloured(self) -> bool:
        """Whether masks are painted in colours, rather than made of numbers."""
        return any(isinstance(value, tuple) for value in self.table)

    @property
    def plain(self) -> bool:
        """Whether masks hold class indices."""
        return list(self.table.items()) == [(index, index) for index in range(len(self.names))]


def by_index(names: Iterable[str]) -> Classes:
    """Classes whose masks hold class indices."""
    names = tuple(names)
    return Classes(names, {index: index for index in range(len(names))})


def by_number(names: dict[int, str]) -> Classes:
    """Classes by the numbers of masks; several may have one name, and are one class."""
    distinct = tuple(dict.fromkeys(names.values()))
    return Classes(distinct, {value: distinct.index(name) for value, name in names.items()})


def is_placeholder(name: str) -> bool:
    """Whether a class is called `class 3`, as one is for want of a name: that says nothing about what it shows."""
    return re.fullmatch(r"class \d{1,5}", name) is not None


def by_own_numbers(names: Sequence[str]) -> Classes | None:
    """Classes that are called `class 3` after the number that masks hold, as inferred ones are; None for others."""
    numbers = {int(name.removeprefix("class ")): name for name in names if is_placeholder(name)}
    return by_number(numbers) if numbers and [*numbers.values()] == [*names] else None


def by_colour(colours: dict[str, Colour]) -> Classes:
    """Classes by the colours of masks."""
    if len(set(colours.values())) < len(colours):
        raise ValueError("two classes have the same colour")
    return Classes(tuple(colours), {colour: index for index, colour in enumerate(colours.values())})


def merge(classes: Classes, into: Mapping[str, str]) -> Classes:
    """Classes of which some, by their names, are others; values of the latter stand before theirs."""
    names = [into.get(name, name) for name in classes.names]
    distinct = tuple(dict.fromkeys(names))
    values = sorted(classes.table.items(), key=lambda entry: classes.names[entry[1]] in into)
    return Classes(distinct, {value: distinct.index(names[label]) for value, label in values}, classes.rare)


def parse_classes(value: Any) -> Classes | None:
    """Parse `[name, …]`, `{number: name, …}` or `{name: colour, …}` in YAML; a ValueError says what is wrong."""
    match value:
        case None | Classes():
            return value
        case [{}, *_] if all(isinstance(entry, dict) and len(entry) == 1 for entry in value):
            return parse_classes(_undashed(value))
        case [_, *_]:
            return by_index(_name(entry) for entry in value)
        case dict() if value and all(isinstance(entry, list) or _is_hex(entry) for entry in value.values()):
            return by_colour({_name(key): parse_colour(entry) for key, entry in value.items()})
        case dict() if value and all(_is_number(key) or _is_range(key) for key in value):
            return by_number(_by_single_number(value))
        case dict() if None in value.values():
            raise ValueError(
                f"nothing stands behind {next(_short(key) for key, entry in value.items() if entry is None)}; put "
                "colours in quotes, as in '#3cb44b', since YAML takes # for a comment"
            )
    raise ValueError(
        "write [name, …] in order of number, or {number: name, …}, or {name: [red, green, blue], …}; "
        f"{_short(value)} is none of these"
    )


def parse_merge(value: Any) -> dict[str, tuple[str, ...]]:
    """Parse `{name: [name, …], …}` in YAML, a class and those that it takes in; a ValueError says what is wrong."""
    if not isinstance(value, dict) or not all(isinstance(names, list | tuple) and names for names in value.values()):
        raise ValueError(f"write {{name: [other, …], …}}, a class and those that it takes in, and not {_short(value)}")
    merged = {_name(key): tuple(map(_name, names)) for key, names in value.items()}
    entries = [(name, key) for key, names in merged.items() for name in names]
    for name, key in entries:
        if name in merged:
            raise ValueError(f"{name!r} takes in others, so that {key!r} cannot take in {name!r}")
        if others := [other for twice, other in entries if twice == name and other != key]:
            raise ValueError(f"{name!r} is taken in by {key!r} and by {others[0]!r}")
    return merged


def _by_single_number(names: dict[Any, Any]) -> dict[int, str]:
    """Names by number, where some may stand behind all numbers from one to another."""
    found: dict[int, str] = {}
    for key, entry in names.items():
        for number in _numbers(key):
            if number in found:
                raise ValueError(f"{number} stands for {found[number]!r} and, in {_short(key)}, for {_name(entry)!r}")
            found[number] = _name(entry)
    return found


def _undashed(entries: list[dict[Any, Any]]) -> dict[Any, Any]:
    """`- name: colour` on each line, without the dashes."""
    merged: dict[Any, Any] = {}
    for entry in entries:
        if merged.keys() & entry.keys():
            raise ValueError(f"{_short(next(iter(entry)))} appears twice")
        merged |= entry
    return merged


def parse_values(value: Any) -> tuple[Value, ...] | None:
    """Parse `[value, …]` in YAML, each a number or a colour; a ValueError says what is wrong."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise ValueError(f"write [value, …], and not {_short(value)}")
    return tuple(parse_number(entry, -(2**31)) if _is_number(entry) else parse_colour(entry) for entry in value)


def parse_colours(value: Any) -> tuple[Colour, ...] | None:
    """Parse `[colour, …]` in YAML; a ValueError says what is wrong."""
    if value is not None and not isinstance(value, list | tuple):
        raise ValueError(f"write [[red, green, blue], …], and not {_short(value)}")
    return None if value is None else tuple(parse_colour(entry) for entry in value)


def parse_colour(value: Any) -> Colour:
    """Parse `[red, green, blue]` or `'#rrggbb'`."""
    if _is_hex(value):
        red, green, blue = bytes.fromhex(value[1:])
        return red, green, blue
    match value:
        case [int(red), int(green), int(blue)] if all(0 <= channel <= 255 for channel in value):
            return red, green, blue
    raise ValueError(f"a colour is [red, green, blue] of 0 to 255, or '#rrggbb', and not {_short(value)}")


def parse_number(value: Any, least: int = 0) -> int:
    """A number that a mask can hold, from the least that is meant on."""
    if _is_number(value) and least <= value < 2**31:
        return int(value)
    negative = f"; `ignore: [{value}]` ignores it" if _is_number(value) and value < 0 else ""
    raise ValueError(f"classes have numbers from 0 on, and not {_short(value)}{negative}")


def default_colours(names: tuple[str, ...]) -> tuple[Colour, ...]:
    """Distinct colours that go together: black for the background, and hues far from the ones before."""
    hues = (index * 0.618034 % 1 for index in range(len(names)))  # steps of the golden section
    mixed = (colorsys.hsv_to_rgb(hue, *SHADES[index // 8 % len(SHADES)]) for index, hue in enumerate(hues))
    colours = [(round(255 * red), round(255 * green), round(255 * blue)) for red, green, blue in mixed]
    return tuple((0, 0, 0) if name == "background" else colour for name, colour in zip(names, colours, strict=True))


def _short(value: Any) -> str:
    text = reprlib.repr(value)  # with references of YAML to itself, the full one can be endless
    return text if len(text) <= SHOWN else f"{text[:SHOWN].rpartition(' ')[0] or text[:SHOWN]} …"


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_range(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d{1,5}-\d{1,5}", value) is not None


def _numbers(key: Any) -> Sequence[int]:
    """The number that stands before a name, or all from one to another, as in `1-255`."""
    if _is_number(key):
        return (parse_number(key),)
    first, last = map(int, key.split("-"))
    if first > last:
        raise ValueError(f"write the smaller number first, and not {_short(key)}")
    return range(first, last + 1)


def _is_hex(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("#[0-9a-fA-F]{6}", value) is not None


def _name(value: Any) -> str:
    if isinstance(value, str) or _is_number(value):
        return class_name(str(value))
    raise ValueError(f"{_short(value)} is no name; put it in quotes if it is meant to be one")
