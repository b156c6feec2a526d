"""Long rows of values in a file, all images one after another, read by position.

A file that is mapped into memory ends the process with a signal if it loses its end, or if the disk below it fails.
Read by position, the same is an error that names the file; it is as fast, since the system keeps in memory what it can.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oneway.common.errors import UserError

AGAIN = "Run the command again (a training run continues with --resume): what is missing is decoded anew."


class OnDisk:
    """Bytes in a file, read slice by slice.

    The file stays open: where another takes its place, the old one is still read.
    """

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self.path, self.shape = path, shape
        self.file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.file)

    @property
    def nbytes(self) -> int:
        """Of the file, when it was written."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice, /) -> npt.NDArray[np.uint8]:
        start, stop, _ = part.indices(len(self))
        found = np.empty((max(stop - start, 0), *self.shape[1:]), dtype=np.uint8)
        self.read(start, found)
        return found

    def read(self, start: int, into: npt.NDArray[np.uint8]) -> None:
        """Fills an array, contiguous in memory, from a place in the row onwards; a UserError names the file."""
        rest, place = into.reshape(-1).data, start * (self.nbytes // max(len(self), 1))
        while rest:
            try:
                count = os.preadv(self.file, [rest], place)
            except OSError as error:
                raise UserError(f"{self.path}: cannot be read any more ({error.strerror}). {AGAIN}") from error
            if not count:
                there = os.fstat(self.file).st_size
                raise UserError(f"{self.path}: has {there} of its {self.nbytes} bytes left. {AGAIN}")
            rest, place = rest[count:], place + count
