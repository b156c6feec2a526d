"""The order of system calls that makes a file survive a power cut: content to disk, then the name, then the folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

Event = tuple[str, ...]
STRACE = re.compile(r"(write|fsync|fdatasync)\(\d+<([^>]+)>|(rename)\(\"([^\"]+)\", \"([^\"]+)\"")


def from_trace(path: Path) -> list[Event]:
    """The calls that the process recorded itself."""
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()]


def from_strace(path: Path) -> list[Event]:
    """The calls that strace saw."""
    events: list[Event] = []
    for line in path.read_text(errors="replace").splitlines():
        if found := STRACE.search(line):
            call, file, rename, source, target = found.groups()
            events.append(("replace", source, target) if rename else ({"fdatasync": "fsync"}.get(call, call), file))
    return events


def renames(events: Iterable[Event], below: Path) -> tuple[int, list[str]]:
    """How many renames there were below a folder, and what was out of order; paths are relative to its parent."""
    synced: set[str] = set()
    waiting: dict[str, str] = {}
    wrong: list[str] = []
    count = 0
    for call, *paths in events:
        full = [os.path.normpath(below.parent / path) for path in paths]
        match call:
            case "write" | "open":
                synced.discard(full[0])
            case "fsync":
                synced.add(full[0])
                waiting.pop(full[0], None)
            case "replace" if Path(full[1]).is_relative_to(below):
                count += 1
                folder = os.path.dirname(full[1])
                if full[0] not in synced:
                    wrong.append(f"{full[1]}: renamed before its content was on the disk")
                if folder in waiting:
                    wrong.append(f"{waiting[folder]}: its folder was not on the disk before the next rename")
                waiting[folder] = full[1]
    return count, wrong + [f"{path}: its folder never reached the disk" for path in waiting.values()]
