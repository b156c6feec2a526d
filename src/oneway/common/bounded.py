"""Reads files that may come from anyone: regular files only, and no more bytes than such a file has reason to hold.

A pipe or a device among the files of a folder would block for ever or never end, and a sparse file of a few blocks can
announce a terabyte.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from oneway.common.errors import UserError, cannot_read

AT_ONCE = 2**20
HOLE = bytes(2**12)
"""So many zero bytes in a row are no text, but a sparse file."""


class Refused(UserError):
    """A file that is not read: no regular file, or larger than such a file has reason to be."""


def open_regular(path: Path) -> BinaryIO:
    """A regular file, opened for reading; an OSError where it cannot be, a Refused where it is a pipe or a device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # or opening a pipe would wait for a writer
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise Refused(f"{path}: not a file but a folder, a pipe or a device, which is not read.")


def read_bounded(path: Path, most: int) -> bytes:
    """The content of a regular file of text with at most so many bytes.

    Raises:
        Refused: It is no regular file, too large, or sparse; says which.
        UserError: It cannot be read; caused by the OSError.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise Refused(f"{path}: {size} bytes are too many; at most {most} are read of such a file.")
            content = bytearray()
            while part := file.read(AT_ONCE):
                content += part
                if len(content) > most:
                    raise Refused(f"{path}: grows while it is read; at most {most} bytes are read of such a file.")
                if HOLE in part:
                    raise Refused(f"{path}: not a text; it is empty from byte {len(content) - len(part)} on.")
    except OSError as error:
        raise cannot_read(path, error) from error
    return bytes(content)
