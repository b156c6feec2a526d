"""Links are followed where a user names them, and not inside a folder: there, a stranger may have left them.

A link at the path that was typed is the user's own: a folder of runs, or of images, on another disk. One below it could
lead anywhere, and what is read or written there is not what was meant.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from oneway.common.errors import UserError


def refuse_link(path: Path) -> Path:
    """The path of a file or folder, which need not be there; a UserError where it is a link."""
    if path.is_symlink():
        raise UserError(f"{path}: a link, which is not followed. Put what it leads to in its place.")
    return path


def is_ordinary(path: Path) -> bool:
    """Whether there is a regular file: no link to one, no pipe, no device."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def make_folders(home: Path, inner: Path) -> None:
    """Makes `inner`, a folder below `home`, with all folders on the way; a UserError where one of those is a link."""
    home.mkdir(parents=True, exist_ok=True)
    for folder in [*reversed(inner.relative_to(home).parents), inner.relative_to(home)]:
        if folder.parts:
            refuse_link(home / folder).mkdir(exist_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name when it has been written: a link of that name is replaced, and not followed."""
    temporary = path.with_name(f".oneway-{os.getpid()}.tmp")  # however long the name is
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
