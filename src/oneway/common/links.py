"""Links are followed where a user names them, and not inside a folder: there, a stranger may have left them.

A link at the path that was typed is the user's own: a folder of runs, or of images, on another disk. One below it could
lead anywhere, and what is read or written there is not what was meant.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

from oneway.common.errors import UserError

SUFFIX = ".tmp"  # the end of the names of incomplete files; they begin with a dot
BYTES_AT_ONCE = 2**22
LONGEST_NAME = 200  # bytes of a name that a temporary one repeats; file systems take 255


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
    """Make `inner`, a folder below `home`, with all folders on the way; a UserError where one of those is a link."""
    home.mkdir(parents=True, exist_ok=True)
    for folder in [*reversed(inner.relative_to(home).parents), inner.relative_to(home)]:
        if folder.parts:
            refuse_link(home / folder).mkdir(exist_ok=True)


def replace_file(path: Path, content: bytes | memoryview) -> None:
    """Give a file new content as a whole; a link of its name is replaced, and not followed.

    At any time it has all of the old content or all of the new one, and nothing is left of one that fails.
    """
    temporary = temporary_for(path)
    try:
        with create(temporary) as descriptor:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest[:BYTES_AT_ONCE]) :]
            os.fsync(descriptor)  # or a power cut could leave the new name without the content
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def temporary_for(path: Path) -> Path:
    """Where a file is written before it gets its name; a long name is cut, or this one would be too long."""
    name = path.name
    if len(whole := os.fsencode(name)) > LONGEST_NAME:
        name = f"{os.fsdecode(whole[:LONGEST_NAME])}{blake2b(whole, digest_size=8).hexdigest()}"
    return path.with_name(f".{name}.{os.getpid()}{SUFFIX}")


@contextmanager
def open_descriptor(path: Path, flags: int) -> Iterator[int]:
    """A descriptor of a file or a folder, closed after the block."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def create(path: Path) -> AbstractContextManager[int]:
    """A descriptor of a new file; what had that name, perhaps a link to elsewhere, is removed and not followed."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    return open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
