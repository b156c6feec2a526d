"""What an image file would cost, from how it is put together: looked at before a decoder is given the file.

Decoders follow a file wherever it leads. A JPEG may go over all its pixels in each of a thousand scans, a PNG may
unpack a colour profile a thousand times, and a directory of a TIFF may refer to gigabytes. Here the parts of a file are
passed over without their content, and a ValueError says what is too much; what is only damaged is left to the decoder.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Literal

from oneway.common.errors import UserError

MOST_BYTES = 2**28  # of a JPEG or a WebP
MOST_SEGMENTS = 4096  # of a JPEG before its pixels; a large profile or depth map takes a few hundred
MOST_JUNK = 2**16  # bytes there that belong to no segment
MOST_SCANS = 1000  # encoders make about ten
SCANNED_PIXELS, SCANNED_PER_BYTE = 2**30, 128
"""Pixels in all scans of a JPEG together: a decoder goes over so many in a second. A long file may have more."""

MOST_CHUNKS, MOST_CHUNK_BYTES = 512, 2**25  # of a PNG, besides those of pixels
MOST_PIECES, BYTES_PER_PIECE = 10_000, 2**10  # of its pixels; with more pieces, each has this many bytes on average

MOST_TAG_BYTES = 2**27  # to which the first directory of a TIFF refers, besides pixels: a decoder reads them all
MOST_ENTRIES = 2**16  # of a directory
BITS, COMPRESSION, PHOTOMETRIC, SAMPLES, PLANES = 258, 259, 262, 277, 284  # tags of a TIFF: SAMPLES are its bands
KIND, FLOATING = 339, 3  # the tag that says what samples are, and floating-point numbers
FLOATING_SAMPLES = "floating-point samples have no agreed range"
MOST_BITS = 32  # of a sample that is read, if only as a class number
NUMBERS = {256: 0, 257: 0, BITS: 1, 274: 1, SAMPLES: 1, COMPRESSION: 1, PHOTOMETRIC: 0, PLANES: 1, KIND: 1}
"""Tags: width, height, bits of a sample, orientation, bands and how they lie; what they are where there is none."""
LOCATING = {33550: (12, "d"), 33922: (12, "d"), 34264: (12, "d"), 34735: (3, "H")}
"""Tags of a GeoTIFF: the type of their values, and what `struct` calls it."""
MOST_VALUES = 2**14  # that are read of such a tag

MOST_SAMPLES = 6  # of which Pillow gives four
PAIR, FOUR = 2, 4
APART, GREY = 2, 1  # bands one behind the other; and such as are no colours, as GDAL writes by default
FIRST_SIDEWAYS = 5  # of the orientations
SUBFILE = 254  # the tag of a TIFF that says how a page relates to the one before
TAG_BYTES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)  # of one value, by type

SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers of a JPEG: its size, and how it is coded
SEQUENTIAL = (b"\xc0", b"\xc1")
SOS, EOI = 0xDA, 0xD9
ALONE = (0x01, 0xD8)  # markers without content
MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)  # but those that restart within coded pixels


@dataclass(frozen=True)
class Directory:
    """One of a TIFF: an image, and what is said about it."""

    elsewhere: int  # bytes of the file to which its entries refer
    subfile: int  # how the image relates to the one before
    tags: dict[int, int]  # of those in NUMBERS, the first value of each
    order: str  # of bytes, as `struct` writes it
    locating: dict[int, tuple[int, int, bytes]]
    """Of those in LOCATING: the type, the number of values, and these or their place in the file."""

    @property
    def numbers(self) -> list[int]:
        """The tags of NUMBERS, in their order."""
        return [self.tags.get(tag, usual) for tag, usual in NUMBERS.items()]

    @property
    def misread(self) -> bool:
        """Whether Pillow would fail or, where bands lie apart from one another, take other samples for colours."""
        _, _, bits, _, bands, compression, photometric, planes, _ = self.numbers
        apart = planes == APART and (bands > FOUR or (compression == 1 and bits > 8))
        return bands > MOST_SAMPLES or (bands > PAIR and (apart or photometric == GREY))

    def read(self, tag: int, file: IO[bytes]) -> tuple[Any, ...]:
        """The values of one of LOCATING; none where they cannot be read."""
        kind, count, value = self.locating.get(tag, (0, 0, b""))
        if kind != LOCATING[tag][0] or count > MOST_VALUES:
            return ()
        values = struct.Struct(f"{self.order}{count}{LOCATING[tag][1]}")
        try:
            if values.size > len(value):
                file.seek(*struct.unpack(self.order + ("Q" if len(value) > 4 else "I"), value))
                value = file.read(values.size)
            return values.unpack(value[: values.size])
        except (struct.error, OverflowError, OSError):
            return ()


class ManyBands(UserError):
    """A TIFF with more bands than Pillow reads, or with bands that lie as it does not read them."""

    def __init__(self, directory: Directory, place: str = "A file") -> None:
        self.directory = directory
        self.width, self.height, self.bits, self.orientation, self.bands, *_ = directory.numbers
        super().__init__(f"{place}: has {self.bands} bands, and a mask has one, or colours. Save it again as PNG.")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width, upright."""
        return (self.width, self.height) if self.orientation >= FIRST_SIDEWAYS else (self.height, self.width)


def many_bands(file: IO[bytes] | None) -> ManyBands | None:
    """What a TIFF with more than four bands says of itself; None of any other file, which is left where it was."""
    first = first_directory(file)
    return ManyBands(first) if first is not None and first.tags.get(SAMPLES, 1) > FOUR else None


def odd_samples(file: IO[bytes] | None) -> str:
    """What of the samples of a TIFF keeps it from being read; nothing of other files. The file is left where it was."""
    first = first_directory(file)
    if first is None:
        return ""
    bits = first.tags.get(BITS, 1)
    return (
        FLOATING_SAMPLES if first.tags.get(KIND) == FLOATING else f"samples of {bits} bits" if bits > MOST_BITS else ""
    )


def first_directory(file: IO[bytes] | None) -> Directory | None:
    """The first directory of a TIFF; None for any other file."""
    assert file is not None
    place = file.tell()
    file.seek(0)
    first = next(directories(file), None) if file.read(2) in (b"II", b"MM") else None
    file.seek(place)
    return first


def examine(file: IO[bytes]) -> int:
    """How often a decoder goes over the pixels of an image file, which is left at its beginning.

    Raises:
        ValueError: It would take too long, or too much memory, to decode; says why.
        ManyBands: It is a TIFF with more than Pillow reads, which would say so in its own words.
    """
    start, size, scans = file.read(12), file.seek(0, os.SEEK_END), 1
    webp = start.startswith(b"RIFF") and start.endswith(b"WEBP")
    jpeg = start.startswith(b"\xff\xd8\xff")
    if (jpeg or webp) and size > MOST_BYTES:  # a WebP is decoded from memory
        raise ValueError(f"{size} bytes are more than the {MOST_BYTES} we decode")
    if jpeg:
        scans = _count_scans(file, size)
    elif start.startswith(b"\x89PNG\r\n\x1a\n"):
        _refuse_chunks(file, size)
    elif start.startswith((b"II", b"MM")):
        for first in directories(file):
            if first.elsewhere > MOST_TAG_BYTES:
                raise ValueError(f"{first.elsewhere} bytes besides its pixels are too many for a TIFF")
            if first.misread:
                raise ManyBands(first)
            break
    file.seek(0)
    return scans


def _count_scans(file: IO[bytes], size: int) -> int:
    """How often a decoder goes over the pixels of a JPEG; a ValueError where that is too often."""
    scans, most, pixels, frame = 0, MOST_SCANS, 0, b""
    for count, (marker, at) in enumerate(_markers(file)):
        if count > MOST_SEGMENTS + 16 * scans:
            raise ValueError(f"more than {MOST_SEGMENTS} segments besides those of pixels are too many for a JPEG")
        file.seek(at)
        if marker in SOF:
            frame = bytes([marker]) + file.read(8)[2:].ljust(6, b"\0")  # and depth, height, width, components
            pixels = int.from_bytes(frame[2:4]) * int.from_bytes(frame[4:6])
            most = min(MOST_SCANS, max(SCANNED_PIXELS, SCANNED_PER_BYTE * size) // max(pixels, 1))
        elif marker == SOS:
            scans += 1
            if frame[:1] in SEQUENTIAL and file.read(3)[2:] == frame[6:]:
                return 1  # with all components in it; a decoder stops behind it
            if scans > most:
                raise ValueError(f"{scans} scans or more of {pixels} pixels are too many for a JPEG of {size} bytes")
    return max(scans, 1)


def _markers(file: IO[bytes]) -> Iterator[tuple[int, int]]:
    """The markers of a JPEG up to its end, and the place behind each; coded pixels and contents are passed over."""
    at, junk, in_pixels = 2, 0, False
    while True:
        file.seek(at)
        block = 64
        while not (match := MARKER.search(part := file.read(block))):
            at, junk, block = at + len(part) - 1, junk + len(part) - 1, min(2 * block, 2**16)
            if len(part) < 2:
                return
            if junk > MOST_JUNK and not in_pixels:
                raise ValueError(f"more than {MOST_JUNK} bytes in it belong to no part of a JPEG")
            file.seek(at)
        marker, at, junk = match[0][1], at + match.end(), junk + match.start()
        if marker == EOI:
            return
        yield marker, at
        in_pixels = in_pixels or marker == SOS
        if marker not in ALONE:
            file.seek(at)
            at += max(int.from_bytes(file.read(2)), 2)


def _refuse_chunks(file: IO[bytes], size: int) -> None:
    """Raise a ValueError where a PNG has very many chunks, or long ones besides its pixels."""
    at, pieces, others, content = 8, 0, 0, 0
    while True:
        file.seek(at)
        head = file.read(8)
        if len(head) < 8 or head.endswith(b"IEND"):
            return
        length = int.from_bytes(head[:4])
        at += length + 12
        if head[4:] in (b"IDAT", b"fdAT", b"fcTL"):
            pieces += 1
            if pieces > MOST_PIECES + size // BYTES_PER_PIECE:
                raise ValueError(f"{pieces} pieces of pixels or more are too many for a PNG of {size} bytes")
        else:
            others, content = others + 1, content + length
            if others > MOST_CHUNKS or content > MOST_CHUNK_BYTES:
                raise ValueError(f"{others} chunks of {content} bytes besides its pixels are too many for a PNG")


def directories(file: IO[bytes]) -> Iterator[Directory]:
    """The directories of a TIFF in their order, each once, as far as they can be read."""
    file.seek(0)
    start = file.read(4)
    order, big = "<" if start.startswith(b"II") else ">", b"+" in start
    byte_order: Literal["little", "big"] = "little" if order == "<" else "big"
    count, entry, place = [order + kind for kind in (("Q", "HHQ8s", "Q") if big else ("H", "HHI4s", "I"))]
    seen: set[int] = set()

    def number(kind: str) -> int:
        found: int = struct.unpack(kind, file.read(struct.calcsize(kind)))[0]
        return found

    try:
        file.seek(8 if big else 4)
        at = number(place)
        while at and at not in seen:
            seen.add(at)
            file.seek(at)
            entries = file.read(min(number(count), MOST_ENTRIES) * struct.calcsize(entry))
            elsewhere = subfile = 0
            tags: dict[int, int] = {}
            locating: dict[int, tuple[int, int, bytes]] = {}
            following = number(place)
            for tag, kind, values, value in struct.iter_unpack(entry, entries):
                length = values * (TAG_BYTES[kind] if kind < len(TAG_BYTES) else 0)
                elsewhere += length if length > len(value) else 0
                if tag == SUBFILE:
                    subfile = int.from_bytes(value[:length], byte_order)
                elif tag in NUMBERS and length:
                    if length > len(value):
                        file.seek(int.from_bytes(value, byte_order))
                        value = file.read(8)
                    tags[tag] = int.from_bytes(value[: TAG_BYTES[kind]], byte_order)
                elif tag in LOCATING:
                    locating[tag] = kind, values, value
            at = following
            yield Directory(elsewhere, subfile, tags, order, locating)
    except (struct.error, OverflowError, OSError):  # the end of the file, or a place beyond
        return
