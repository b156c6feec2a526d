"""Labels in formats that are not supported: recognised, so that a message can say what to do."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from oneway.data.dataset import Item
from oneway.data.folder.layout import UNSUPPORTED, Problem
from oneway.data.folder.outputs import is_output

KINDS = {".json": "Labelme", ".txt": "YOLO", ".xml": "Pascal VOC"}
"""Whose annotation files of single images have this suffix, if SIGNS agrees."""

SIGNS = {".json": rb'"shapes"\s*:', ".txt": rb"\A\d+( -?[\d.]+){4,}\s", ".xml": rb"<annotation>"}
"""Content that tells these files from others with the same suffix."""

MOST_READ = 2**20
"""Bytes of a file that are looked at."""


def unsupported_labels(root: Path, items: Sequence[Item]) -> list[str]:
    """Remarks on files that have the names of images without a mask, and seem to hold their labels."""
    bare = {item.image.stem for item in items if item.mask is None}
    found: dict[str, list[Path]] = defaultdict(list)
    for folder, inner, files in os.walk(root) if bare else ():
        inner[:] = sorted(name for name in inner if not is_output(Path(folder, name)))
        for path in (Path(folder, name) for name in sorted(files)):
            if path.suffix.lower() in KINDS and path.stem in bare:
                found[path.suffix.lower()].append(path)
    return [
        f"{kind} files with the names of images are not read ({len(paths)}; {paths[0].relative_to(root).as_posix()} is "
        "the first). Export these labels as PNG masks, or as COCO."
        for paths in found.values()
        if (kind := _kind(paths[0]))
    ]


def unsupported_images(problems: Iterable[Problem]) -> str:
    """A phrase that counts files of unsupported kinds; empty where there are none."""
    kinds: dict[str, int] = defaultdict(int)
    for problem in problems:
        if (suffix := problem.file.suffix.lower()) in UNSUPPORTED:
            kinds[suffix] += 1
    counts = " and ".join(f"{count} of kind {suffix}" for suffix, count in sorted(kinds.items()))
    return f", but files that are not read: {counts}. Convert them to JPEG or PNG" if kinds else ""


def _kind(path: Path) -> str | None:
    """The program or format whose labels a file holds; None where it holds something else, such as notes."""
    try:
        start = path.read_bytes()[:MOST_READ]
    except OSError:
        return None
    return KINDS[path.suffix.lower()] if re.search(SIGNS[path.suffix.lower()], start) else None
