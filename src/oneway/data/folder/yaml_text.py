"""A description as the text of a `dataset.yaml`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from oneway.data.folder.classes import Classes
from oneway.data.folder.description import OPTIONS, Description


def to_yaml(description: Description) -> str:
    """The content of a `dataset.yaml` that is read as this description, with comments."""
    rename = " Rename the classes as you like." if description.classes else ""
    return "\n".join([f"# How this folder is read.{rename}", *_lines(description), ""])


def classes_to_yaml(classes: Classes) -> str:
    """The lines of a `dataset.yaml` that name the classes."""
    return "\n".join(_class_lines(classes))


def _lines(description: Description) -> Iterator[str]:
    if description.classes:
        named = description.train is not None and description.train.annotations is not None
        yield from _class_lines(description.classes, "in the order of class numbers" if named else "")
    if description.colours is not None:
        yield "colours:  # in which the classes are shown"
        yield from (f"  - {to_flow(colour)}" for colour in description.colours)
    if description.ignore is not None:
        yield f"ignore: {to_flow(description.ignore)}  # neither trains nor counts"
    for key, part in (("train", description.train), ("val", description.val), ("test", description.test)):
        if part is not None:
            yield f"{key}: {to_flow(part.model_dump(exclude_none=True))}"
    for key in ("unlabelled", "background"):
        if folders := getattr(description, key):
            yield f"{key}: {to_flow(folders)}"
    for option in OPTIONS:
        if option in description.model_fields_set:
            yield f"{option}: {to_flow(getattr(description, option))}"


def _class_lines(classes: Classes, meaning: str = "") -> Iterator[str]:
    """A line for each class, and for the values of masks where they are of these; `meaning` says what lines mean."""
    where = "the number behind each" if classes.plain else "the number before each"
    of_masks = "the colour of each in the masks: red, green, blue" if classes.coloured else f"masks hold {where}"
    yield f"classes:  # {meaning or of_masks}"
    for value, label in classes.table.items():
        name = to_flow(classes.names[label])
        stray = "hardly occurs, in a single mask: a stray?" if value in classes.rare else ""
        if classes.plain:
            yield f"  - {name}  # {value}{stray and f', {stray}'}"
        else:
            entry = f"{name}: {to_flow(value)}" if classes.coloured else f"{value}: {name}"
            yield f"  {entry}{stray and f'  # {stray}'}"


def to_flow(value: Any) -> str:
    """A value on one line of YAML."""
    return yaml.dump(
        [value], Dumper=_Dumper, default_flow_style=True, allow_unicode=True, width=2**20, sort_keys=False
    )[1:-2]


class _Dumper(yaml.SafeDumper):
    """Writes tuples as lists, without references to those it wrote before."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
