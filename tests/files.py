"""What is in files, and whether anything has touched them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    """A hash and the time of the last change of every file."""
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def change_json(file: Path, **values: object) -> None:
    """Puts other values into a JSON object."""
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | values), encoding="utf-8")
