"""Reads files so that a disk that fails for a moment is not taken for a missing or damaged file.

Python's `exists` and `glob` take some errors for a no. Where a no would remove, rename or restart something, these
functions are used instead: they raise CannotRead.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oneway.common.errors import UserError
from oneway.runs.atomic import open_descriptor


class CannotRead(UserError):
    """A file or folder cannot be read now, which says nothing about what is in it."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Within the block, an error of the system, or of its memory, becomes a CannotRead that names the path."""
    try:
        yield
    except (OSError, MemoryError) as error:
        words = error.strerror or str(error) if isinstance(error, OSError) else os.strerror(errno.ENOMEM)
        raise CannotRead(
            f"{path}: cannot be read ({words}). Nothing has been changed: when it can be read, run the same command "
            "again."
        ) from error


def is_there(path: Path) -> bool:
    """Whether there is something of this name, be it a link to nowhere; CannotRead where the system cannot tell."""
    with reading(path):
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


def list_names(folder: Path) -> list[str]:
    """What is in a folder, in order; nothing where there is no folder. CannotRead where it cannot be listed."""
    with reading(folder):
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in entries)
        except FileNotFoundError:
            return []


def read_whole(path: Path, check_size: Callable[[int], None]) -> bytes:
    """All bytes of an ordinary file; links are not followed.

    `check_size` is given the size before anything is read, and raises an error about one that cannot be right.

    Raises:
        CannotRead: Not all of it could be read.
        UserError: It is no ordinary file.
    """
    # A pipe does not keep us waiting.
    with reading(path), open_descriptor(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as descriptor:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise UserError(f"{path}: not an ordinary file.")
        check_size(about.st_size)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(about.st_size + 1)
        if len(content) != about.st_size:
            raise OSError(errno.EIO, f"{len(content)} bytes came of {about.st_size}")
    return content
