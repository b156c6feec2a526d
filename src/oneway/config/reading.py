"""From nested values to a checked configuration; what is wrong with them is said by key and value."""

from __future__ import annotations

import re
import reprlib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from oneway.common.errors import UserError
from oneway.common.words import command, visible
from oneway.config.conflicts import conflicts
from oneway.config.tree import Config

MOST_YAML_BYTES = 2**18
"""Of a file of settings; a dataset.yaml with names and colours for all 255 classes has 10 KiB."""

MOST_OF_A_KEY = 200
"""Characters of an unknown key that a message shows."""


def build(tree: dict[str, Any], source: str) -> Config:
    """A checked configuration from nested values; what is wrong is said with `source`, key and value."""
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
        tree = yaml.safe_load(content.decode())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date such as 2001-13-45, a thousand brackets
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path}: not valid YAML ({str(error).splitlines()[0]}{place}).") from None
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


def prefer_epochs(changes: dict[str, Any]) -> dict[str, Any]:
    """The changes; where they ask for epochs alone, also one that drops the iterations of a recipe, which would win."""
    train = changes.get("train")
    only_epochs = isinstance(train, dict) and {"epochs"} == train.keys() & {"epochs", "iterations"}
    return merge(changes, {"train": {"iterations": None}}) if only_epochs else changes


def explain(error: ValidationError) -> str:
    """A validation error as text: one line per key, with its value and the nearest known key."""
    return "\n".join(
        _explain_one(detail["type"], detail["loc"], detail["msg"], detail["input"]) for detail in error.errors()
    )


def _explain_one(kind: str, location: tuple[int | str, ...], message: str, value: object) -> str:
    if kind == "extra_forbidden":
        key = visible(".".join(map(str, location))[:MOST_OF_A_KEY], lines=False)
        near = get_close_matches(key.replace("-", "_"), [*Config.model_fields, *Config().flat()], n=1)
        return f"unknown key '{key}'." + (f" Did you mean '{near[0]}'?" if near else "")
    # Positions inside tuples and names of union members are pydantic's, not the user's.
    key = ".".join(part for part in location if isinstance(part, str) and part.isidentifier())
    reason = message.removeprefix("Value error, ").removeprefix("Input ")
    place = f"{key}: " if key else ""
    if isinstance(value, dict):
        return f"{place}{reason}."
    # Only of strings: a few lines of YAML can stand for a value that no memory holds once it is written out.
    named = kind in ("literal_error", "value_error") and isinstance(value, str)
    near = get_close_matches(str(value), re.findall(r"'([^']+)'", message), n=1) if named else []
    if near:  # first: the names that it should be may be many
        return f"{place}unknown value {reprlib.repr(value)}. Did you mean '{near[0]}'? It {reason}."
    return f"{place}{reason} (got {reprlib.repr(value)})."


def confirm_factory(named: str | None, given: str | None, source: Path) -> None:
    """Refuses to run code that a file names, unless the user names it too: a model may come from anyone."""
    if named is not None and named != given:
        raise UserError(
            f"{source}: its network is made by {named}, code that would run here. "
            f"If you trust it, say so with {command('--model.factory', named)}."
        )
