"""The index of a folder of images that is a pool: their names, sizes and times."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import numpy as np
from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.words import say
from oneway.data.decode.images import SUFFIXES
from oneway.data.folder.walk import Problem, walk
from oneway.data.pool.entries import ENTRY, INDEX, PART, PoolIndex, Shard, digest_name, load, save
from oneway.data.pool.files import Status


def index_folder(folder: Path, left_out: Collection[Path], place: Path, refresh: bool, console: Console) -> PoolIndex:
    """The index of a folder and its subfolders, kept in another; they are listed again where one of them has changed.

    Raises:
        UserError: The images are others than before, and `refresh` does not accept that.
    """
    index = None if refresh else load(place)
    if index is not None and index.subfolders == _times(folder, index.subfolders):
        return index
    say(console, f"Indexing {folder}.")
    images = list_images(folder, left_out)
    folders = {os.path.dirname(name) for name, _ in images} | {
        os.path.relpath(inner, folder) for inner, _, _ in os.walk(folder)
    }
    times = _times(folder, folders)
    entries, names = np.zeros(len(images), dtype=ENTRY), bytearray()
    for number, (name, path) in enumerate(images):
        status, text = path.stat(), os.fsencode(name)
        size = min(status.st_size, 2**32 - 1)
        entries[number] = (len(names), digest_name(name), size, 0, len(text), time_stamp(status))
        names += text
    (place / PART).write_bytes(entries.tobytes())
    found = save(place, [Shard(str(folder), Status(0, ""), len(images), "")], bytes(names), times)
    if index is not None and found.digest != index.digest:
        (place / INDEX).unlink()
        raise UserError(
            f"{folder}: its {len(found):,} images are not the {len(index):,} that it had when it was indexed. "
            "Restore what should be there, or accept the change with --data.refresh."
        )
    return found


def list_images(folder: Path, left_out: Collection[Path] = ()) -> list[tuple[str, Path]]:
    """Names and paths of the images of a folder and its subfolders, in order of name."""
    problems: list[Problem] = []
    paths = (path for path in walk(folder, folder, problems) if path.suffix.lower() in SUFFIXES)
    return sorted(
        (path.relative_to(folder).as_posix(), path) for path in paths if not left_out or path.resolve() not in left_out
    )


def time_stamp(status: os.stat_result) -> int:
    """When a file was written, in 32 bits."""
    return (status.st_mtime_ns ^ status.st_mtime_ns >> 32) & 0xFFFFFFFF


def _times(folder: Path, names: Collection[str]) -> dict[str, int]:
    """When files were last added to folders, removed or renamed there; -1 for folders that are gone."""
    found = {}
    for name in names:
        try:
            found[name] = os.stat(folder / name).st_mtime_ns
        except OSError:
            found[name] = -1
    return found
