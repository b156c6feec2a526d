"""Files that are read by position: what every reader of them is to the rest, and that of files on this machine.

A read gives the bytes that were asked for, of the file that is meant, or a UserError that names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from oneway.common.bounded import open_regular
from oneway.common.errors import UserError, cannot_read


class Status(NamedTuple):
    """Size and version of a file, which tell whether it is the one it was."""

    size: int
    stamp: str  # when it was written, or what its server calls this version of it; empty where nobody says


class Files(Protocol):
    """Reads files; from several threads at once."""

    waits: bool
    """Whether reading is waiting, mostly, so that many threads are of use."""

    def status(self, path: str) -> Status: ...

    def read(self, path: str, start: int, count: int, expected: Status | None = None) -> bytes:
        """Bytes of a file from a place onwards; fewer only where it ends.

        Raises:
            UserError: It cannot be read, or is another than expected, as far as that shows.
        """

    def close(self) -> None:
        """End requests that are waited for."""


class LocalFiles:
    """Files on this machine."""

    waits = False

    def status(self, path: str) -> Status:
        with opened(path) as file:
            found = os.fstat(file.fileno())
        return Status(found.st_size, str(found.st_mtime_ns))

    def read(self, path: str, start: int, count: int, expected: Status | None = None) -> bytes:
        with opened(path) as file:
            found = os.fstat(file.fileno()).st_size
            content = os.pread(file.fileno(), count, start)
        if expected is not None and found != expected.size:
            raise changed(path, expected, Status(found, ""))
        return content

    def close(self) -> None:
        """Nothing is waited for."""


@contextmanager
def opened(path: Path | str) -> Iterator[BinaryIO]:
    """A file on this machine; what fails within the block is a UserError that names it."""
    try:
        with open_regular(Path(path)) as file:
            yield file
    except OSError as error:
        raise cannot_read(path, error) from error


def changed(path: str, expected: Status, found: Status) -> UserError:
    """The error about a file that is another than it was."""
    what = f"has {found.size} bytes, and had {expected.size}" if found.size != expected.size else "is another version"
    return UserError(
        f"{path}: changed since it was indexed: it {what}. Restore it, or accept the change with --data.refresh."
    )
