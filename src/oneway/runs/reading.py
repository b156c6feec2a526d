"""File access in which a transient error of the disk is not mistaken for a missing or damaged file.

Python's `exists` and `glob` return False for some errors. Where that would remove, rename or restart something, these
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
from oneway.common.links import open_descriptor


class CannotRead(UserError):
    """A file or folder cannot be read at the moment; its content may be intact."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Within the block, an OSError or MemoryError becomes a CannotRead that names the path."""
    try:
        yield
    except (OSError, MemoryError) as error:
        words = error.strerror or str(error) if isinstance(error, OSError) else os.strerror(errno.ENOMEM)
        raise CannotRead(
            f"{path}: cannot be read ({words}). Nothing has been changed: when it can be read, run the same command "
            "again."
        ) from error


def is_there(path: Path) -> bool:
    """Whether a path exists, even as a broken link; CannotRead where the system cannot tell."""
    with reading(path):
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


def list_names(folder: Path) -> list[str]:
    """The sorted names in a folder; empty if it does not exist. CannotRead if it cannot be listed."""
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
