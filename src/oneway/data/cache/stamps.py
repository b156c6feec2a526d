"""What files were when they were decoded, and whether they are so still: by size and time, or else by content.

A file that was touched, copied or restored has another time and the same content, which is compared once: in the
cache, a file remembers which files have had which content at which time. Each entry is true by itself, whoever wrote it
and whichever index is there now. So it needs no lock, and what is lost of it costs time alone.

The time at which its status changed (ctime) would tell a file of the same size and time from another one. But copies on
the disks of several computers differ in it, and backups change it: all files would be compared at every start.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, Field
from rich.console import Console

from oneway.common.errors import UserError, cannot_read
from oneway.common.links import replace_file
from oneway.common.progress import progress_bar
from oneway.common.threads import in_threads
from oneway.data.dataset import Item
from oneway.data.decode.json_files import read_json

SETTLED = 2.0
"""Seconds after which a file that has the same time has the same content: clocks of file systems are coarse."""
MOST_BYTES = 2**32
"""The most bytes of a file that is stamped: no image or mask that is decoded has more."""
THREADS = 16
"""That compare files: on a disk that is reached over a network, most of them wait."""


class Stamp(BaseModel):
    """What a file was."""

    path: str
    bytes: int | None  # None where it was not there
    modified: int | None
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None  # of its content, where it was decoded

    @classmethod
    def of(cls, path: str) -> Self:
        """Size and time of a file, if it is there."""
        with suppress(OSError, ValueError):
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode):
                return cls(path=path, bytes=status.st_size, modified=status.st_mtime_ns)
        return cls(path=path, bytes=None, modified=None)

    def matches(self, now: Stamp) -> bool:
        """Whether the file had this size and time already, or is still not there."""
        return (self.bytes, self.modified) == (now.bytes, now.modified)


def files_of(item: Item) -> list[str]:
    """An item's files, by absolute paths: the same in whichever way the data folder was given."""
    return [os.path.abspath(path) for path in (item.image, item.mask, *item.further) if path]


def stamp_files(item: Item, digests: dict[tuple[str, str], str]) -> list[tuple[Stamp, str]]:
    """What an item's files are, if they are there, each with what else would be different in another file of its name.

    Asked before and after they are decoded, it tells whether others have come in between. Digests that are known, by
    path and by that, are not computed again: items may share a file of annotations.
    """
    found = []
    for path in files_of(item):
        stamp, identity = Stamp.of(path), ""
        with suppress(OSError, UserError):  # decoding will say so
            status = os.stat(path)
            identity = f"{status.st_dev} {status.st_ino} {status.st_ctime_ns}"
            if stat.S_ISREG(status.st_mode) and status.st_size <= MOST_BYTES:
                key, settled = (path, identity), abs(time.time() - status.st_ctime) > SETTLED
                if not settled or key not in digests:
                    digests[key] = _digest(path)
                stamp.digest = digests[key]
        found.append((stamp, identity))
    return found


def changed_files(stamps: Sequence[Stamp], memory: Path, console: Console) -> set[str]:
    """The files that are gone, or have another size or content than these stamps, by path.

    Other stamps get the present time of their file. What has been compared is remembered in a file, `memory`; where
    that cannot be written, it is compared at every start.

    Raises:
        UserError: A file cannot be compared, as it cannot be read.
    """
    now = {path: Stamp.of(path) for path in dict.fromkeys(stamp.path for stamp in stamps)}
    others = [stamp for stamp in stamps if not stamp.matches(now[stamp.path])]
    touched = [stamp for stamp in others if stamp.digest and stamp.bytes == now[stamp.path].bytes]
    if touched:
        same = _same_files({(stamp.path, stamp.digest) for stamp in touched}, now, memory, console)
        for stamp in touched:
            if (stamp.path, stamp.digest) in same:
                stamp.modified = now[stamp.path].modified
    return {stamp.path for stamp in others if not stamp.matches(now[stamp.path])}


def _same_files(
    contents: set[tuple[str, str | None]], now: Mapping[str, Stamp], memory: Path, console: Console
) -> set[tuple[str, str | None]]:
    """Which files, with a digest each, have such content: those that are remembered, and others that are read."""
    remembered, new = _remembered(memory), {}
    same = {(path, digest) for path, digest in contents if remembered.get(path) == [now[path].modified, digest]}
    unknown = sorted({path for path, _ in contents - same})
    try:
        with progress_bar(console, "Comparing touched files", len(unknown)) as advance:
            for path, (digest, modified) in zip(unknown, in_threads(_read_digest, unknown, THREADS), strict=True):
                if (path, digest) in contents:
                    same.add((path, digest))
                    if modified is not None:
                        new[path] = [modified, digest]
                advance()
    finally:  # so that what was compared before an error, or Ctrl-C, is not compared again
        if new:
            with suppress(OSError):
                replace_file(memory, json.dumps(remembered | new).encode())
    return same


def _remembered(memory: Path) -> dict[str, object]:
    """Time and digest of files, by path, as far as a file says; what it says is compared, and need not be checked."""
    try:
        found = read_json(memory)
    except UserError:
        return {}
    return found if isinstance(found, dict) else {}


def _read_digest(path: str) -> tuple[str, int | None]:
    """A digest of a file's content, and the time by which that is known again; None where another may have it too."""
    before, began = Stamp.of(path), time.time()
    digest = _digest(path)
    if before.modified is None or abs(began - before.modified / 1e9) <= SETTLED or Stamp.of(path) != before:
        return digest, None
    return digest, before.modified


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file_digest(file, partial(blake2b, digest_size=16)).hexdigest()
    except OSError as error:
        raise cannot_read(path, error) from None
