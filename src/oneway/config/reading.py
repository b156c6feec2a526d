"""Build a checked configuration from nested values; errors name key and value."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from oneway.common.errors import UserError, cannot_read
from oneway.common.words import command, first_line, visible
from oneway.config.conflicts import conflicts
from oneway.config.tree import Config

MOST_YAML_BYTES = 2**18
"""The most bytes of a YAML file; a dataset.yaml with names and colours for all 255 classes has 10 KiB."""

MOST_OF_A_KEY = 200
"""The most characters of an unknown key that a message shows."""


class _Loader(yaml.SafeLoader):
    """Refuse a key that stands twice: YAML forbids it, and PyYAML would lose all but the last."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        known = set[tuple[str, str]]()
        scalars = (key for key, _ in node.value if isinstance(key, yaml.ScalarNode))  # others are refused later
        for key in scalars:
            name = key.tag, key.value
            if name in known:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r:.80} stands there twice", problem_mark=key.start_mark)
            known.add(name)
        return node


def build(tree: dict[str, Any], source: str) -> Config:
    """Build a checked configuration from nested values; errors name `source`, key and value."""
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise UserError(f"{source}: {explain(error)}") from None
    for conflict in conflicts(config):
        raise UserError(f"{source}: {conflict}.")
    return config


def read_yaml(path: Path) -> dict[str, Any]:
    """The nested values of a configuration file, not yet checked."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_YAML_BYTES + 1)  # and no more, whatever a pipe or a device has to give
        if len(content) > MOST_YAML_BYTES:
            size = max(path.stat().st_size, len(content))
            raise UserError(f"{path}: {size} bytes are too many for YAML; at most {MOST_YAML_BYTES} are read.")
        tree = yaml.load(content.decode(), _Loader)
    except OSError as error:
        raise cannot_read(path, error) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date such as 2001-13-45, a thousand brackets
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path}: not valid YAML ({first_line(error)}{place}).") from None
    if not isinstance(tree, dict):
        raise UserError(f"{path}: expected keys and values at the top level, found {type(tree).__name__}.")
    return tree


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with the leaves of `changes` put over it."""
    merged = dict(base)
    for key, value in changes.items():
        both_sections = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both_sections else value
    return merged


def unset_alternatives(changes: dict[str, Any]) -> dict[str, Any]:
    """The changes, and with them the settings they override: epochs unset `iterations`, a crop unsets `jitter.fit`."""
    for section, given, other, value in (("train", "epochs", "iterations", None), ("jitter", "crop", "fit", False)):
        settings = changes.get(section)
        if isinstance(settings, dict) and {given} == settings.keys() & {given, other}:
            changes = merge(changes, {section: {other: value}})
    return changes


def explain(error: ValidationError) -> str:
    """A validation error as text: a line per key and value, with the expectation and the nearest known key."""
    settings = Config().flat()
    lines: dict[tuple[str, str], list[ErrorDetails]] = {}
    for detail in error.errors():
        unknown = detail["type"] == "extra_forbidden"
        # Positions inside tuples and names of union members are pydantic's, not the user's.
        parts = [str(part) for part in detail["loc"] if unknown or (isinstance(part, str) and part.isidentifier())]
        path = ".".join(parts)
        key = next((key for key in accumulate(parts, "{}.{}".format) if key in settings), path)
        lines.setdefault((path if unknown else key, reprlib.repr(detail["input"])), []).append(detail)
    return "\n".join(_explain_one(key, details) for (key, _), details in lines.items())


def _explain_one(key: str, details: Sequence[ErrorDetails]) -> str:
    """The message for a value; several details where it fits no member of a union."""
    if details[0]["type"] == "extra_forbidden":
        key = visible(key[:MOST_OF_A_KEY], lines=False)
        near = get_close_matches(key.replace("-", "_"), [*Config.model_fields, *Config().flat()], n=1)
        return f"unknown key '{key}'." + (f" Did you mean '{near[0]}'?" if near else "")
    value = details[0]["input"]
    first, *others = dict.fromkeys(
        re.sub(r"^(Value error, )?(Input )?|, (unable to parse|got a number) .*", "", detail["msg"])
        for detail in details
    )
    reason = ", or ".join((first, *(other.removeprefix("should be ") for other in others)))
    place = f"{key}: " if key else ""
    if isinstance(value, dict):
        return f"{place}{reason}."
    # Only of strings: a few lines of YAML can stand for a value that no memory holds once it is written out.
    named = isinstance(value, str) and any(detail["type"] in ("literal_error", "value_error") for detail in details)
    options = re.findall(r"'([^']+)'", reason) if named else []
    near = get_close_matches(value, options, n=1) if named else []
    if near or len(options) > 1:  # the value first: the names that it should be may be many
        suggestion = f" Did you mean '{near[0]}'?" if near else ""
        return f"{place}unknown value {reprlib.repr(value)}.{suggestion} It {reason}."
    return f"{place}{reason} (got {reprlib.repr(value)})."


def confirm_factory(named: str | None, given: str | None, source: Path) -> None:
    """Refuse to run a `model.factory` from a file unless the user names it too: a file may come from anyone."""
    if named is not None and named != given:
        raise UserError(
            f"{source}: its network is made by {named}, code that would run here. "
            f"If you trust it, say so with {command('--model.factory', named)}."
        )
