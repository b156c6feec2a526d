"""Text files of a run folder, which may come from anywhere: what is wrong with one is a UserError that names it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oneway.common.errors import UserError

MOST_BYTES = 2**26
"""Of a text file in a run folder."""

Kinds = Mapping[str, type | tuple[type, ...]]
"""What an object must have: the type, or types, of the value under each key."""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a run folder."""
    try:
        found = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: damaged; not JSON ({str(error)[:200]}).") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: damaged; expected an object, found {type(found).__name__}.")
    return found


def checked(found: dict[str, Any], kinds: Kinds, path: Path) -> dict[str, Any]:
    """An object that was read from a file, refused where it lacks something."""
    for key, kind in kinds.items():
        if not isinstance(found.get(key), kind):
            raise UserError(f"{path}: damaged; {key} is {found.get(key)!r:.200}.")
    return found


def logged_lines(path: Path) -> list[dict[str, Any] | None]:
    """The lines of `metrics.jsonl`; None for one that says nothing about an iteration.

    The last of them is left out where it lacks its end: it was being written when the machine stopped.
    """
    return [_parsed(line) for line in text_of(path).split("\n")[:-1]] if path.exists() else []


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("iteration"), int) else None


def text_of(path: Path) -> str:
    """What a file holds; bytes that are no text stand out in it."""
    refuse_strange(path)
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from None


def refuse_strange(path: Path) -> None:
    """A link could lead out of the folder, and a file fill the memory."""
    if path.is_symlink() or not path.is_file():
        raise UserError(f"{path}: {'not an ordinary file' if path.exists() else 'no such file'}.")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise UserError(f"{path}: damaged; {size} bytes are too many.")
