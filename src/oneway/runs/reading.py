"""Text files of a run folder, which may come from anywhere: what is wrong with one is a UserError that names it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oneway.common.errors import UserError

MOST_BYTES = 2**26
"""Of a text file in a run folder."""

Types = Mapping[str, type | tuple[type, ...]]
"""What an object must have: the type, or types, of the value under each key."""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a run folder."""
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: damaged; not JSON ({str(error)[:200]}).") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: damaged; expected an object, found {type(found).__name__}.")
    return found


def require_types(found: dict[str, Any], types: Types, path: Path) -> dict[str, Any]:
    """The object that was read from a file; refused where a value is missing or of another type."""
    for key, expected in types.items():
        if not isinstance(found.get(key), expected):
            raise UserError(f"{path}: damaged; {key} is {found.get(key)!r:.200}.")
    return found


def read_log(path: Path) -> list[dict[str, Any] | None]:
    """The lines of `metrics.jsonl`; None for one that is no JSON object with an iteration.

    A last line without its end is left out: it was being written when the machine stopped.
    """
    return [_parse(line) for line in read_text(path).split("\n")[:-1]] if path.exists() else []


def _parse(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("iteration"), int) else None


def read_text(path: Path) -> str:
    """The text of a file; bytes that are not UTF-8 become U+FFFD."""
    refuse_unusual(path)
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from None


def refuse_unusual(path: Path) -> None:
    """Refuses a link, which could lead out of the folder, a pipe, and a file that would fill the memory."""
    if path.is_symlink() or not path.is_file():
        raise UserError(f"{path}: {'not an ordinary file' if path.exists() else 'no such file'}.")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise UserError(f"{path}: damaged; {size} bytes are too many.")
