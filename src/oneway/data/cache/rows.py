"""Long rows of values in a file, all images one after another, read by position and checked image by image.

A file that is mapped into memory ends the process with a signal if it loses its end, or if the disk below it fails.
Read by position, the same is an error that names the file; it is as fast, since the system keeps in memory what it can.
"""

from __future__ import annotations

import os
import weakref
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oneway.common.errors import UserError

AGAIN = "Run the command again (a training run continues with --resume): what is missing is decoded anew."
Bytes = npt.NDArray[np.uint8]


def checksum(values: Bytes) -> int:
    """A checksum of an array that is contiguous in memory: the same for the same values.

    CRC-32 keeps up with a disk. It is against accidents: whoever may change the pixels may change their checksums too.
    """
    return zlib.crc32(values.reshape(-1).data)


@dataclass(frozen=True)
class Originals:
    """The checksum of each image in a file, and a function that decodes an image again."""

    bounds: npt.NDArray[np.int64]
    """Where each image begins, and where the last one ends."""

    checksums: Sequence[int]
    decode: Callable[[int], Bytes]
    """Decodes an image, by its number, once more."""

    classes: int | None = None
    """Where values are labels, only those below this one occur, and IGNORE."""

    def agree(self, image: int, found: Bytes) -> bool:
        """Whether these are the values of an image; labels that stand for nothing never are."""
        if self.classes is not None and (found + np.uint8(1)).max(initial=0) > self.classes:  # IGNORE becomes 0
            return False
        return checksum(found) == self.checksums[image]


class OnDisk:
    """Bytes in a file, read slice by slice.

    An image is checked when it is first read, and again when the file has been written to since. One that is not what
    it was is decoded again, and put back into its place.

    The file stays open: where another takes its place, the old one is still read.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], originals: Originals | None = None) -> None:
        self.path, self.shape, self.originals = path, shape, originals
        self.file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.file)
        self.checked = np.zeros(len(originals.checksums) if originals else 0, dtype=bool)
        self.state = self._state()

    @property
    def nbytes(self) -> int:
        """The size that the file had when it was written."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice, /) -> Bytes:
        start, stop, _ = part.indices(len(self))
        found = np.empty((max(stop - start, 0), *self.shape[1:]), dtype=np.uint8)
        self.read(start, found)
        return found

    def read(self, start: int, into: Bytes) -> None:
        """Fill an array, contiguous in memory, from a place in the row onwards; a UserError names the file."""
        if self.originals is None:
            self._fill(start, into)
            return
        bounds, stop = self.originals.bounds, start + len(into)
        first, last = np.searchsorted(bounds, start, "right") - 1, np.searchsorted(bounds, stop, "left")
        for image in range(int(first), int(last)):  # each is checked while the processor still has it at hand
            begin, end = int(bounds[image]), int(bounds[image + 1])
            low, high = max(begin, start), min(end, stop)
            part = into[low - start : high - start]
            self._fill(low, part)
            if (state := self._state()) != self.state:
                self.state = state
                self.checked[:] = False
            if not self.checked[image]:
                right = self._check(image, part if (low, high) == (begin, end) else self._whole(begin, end))
                if right is not None:
                    part[:] = right[low - begin : high - begin]

    def _check(self, image: int, found: Bytes) -> Bytes | None:
        """The true values of an image where those found are not; they are put back. None where all is well."""
        assert self.originals is not None
        if self.originals.agree(image, found):
            self.checked[image] = True
            return None
        right = np.ascontiguousarray(self.originals.decode(image)).reshape(found.shape)
        self._put_back(int(self.originals.bounds[image]), right)
        return right

    def _put_back(self, start: int, values: Bytes) -> None:
        """Write them into the file; where that cannot be done, the image is decoded again the next time.

        Every process that reads the file wants these bytes there, so none is disturbed.
        """
        with suppress(OSError):
            place = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if os.path.samestat(os.fstat(place), os.fstat(self.file)):
                    os.pwrite(place, values.reshape(-1).data, start * self._width)
                    self.state = self._state()
            finally:
                os.close(place)

    def _whole(self, begin: int, end: int) -> Bytes:
        found = np.empty((end - begin, *self.shape[1:]), dtype=np.uint8)
        self._fill(begin, found)
        return found

    @property
    def _width(self) -> int:
        return self.nbytes // max(len(self), 1)

    def _state(self) -> tuple[int, ...]:
        """A state of the file that is another after every write; what a disk changes by itself does not show in it."""
        status = os.fstat(self.file)
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def _fill(self, start: int, into: Bytes) -> None:
        rest, place = into.reshape(-1).data, start * self._width
        while rest:
            try:
                count = os.preadv(self.file, [rest], place)
            except OSError as error:
                raise UserError(f"{self.path}: cannot be read any more ({error.strerror}). {AGAIN}") from error
            if not count:
                there = os.fstat(self.file).st_size
                raise UserError(f"{self.path}: has {there} of its {self.nbytes} bytes left. {AGAIN}")
            rest, place = rest[count:], place + count
