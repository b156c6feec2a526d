"""Image files of at most a few megabytes that cost a decoder minutes or gigabytes, each by a trick of its format."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from PIL import Image

from data.encoders import chunk, png_of
from reliability.hostile_sizes import compressed_zeros

MIB = 2**20
NOTHING = struct.pack(">I", 0)


def _segment(marker: int, content: bytes) -> bytes:
    """Of a JPEG."""
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def jpeg(width: int, height: int, before: bytes = b"", scans: int = 1, components: int = 3) -> bytes:
    """A progressive JPEG with many scans, each as long as can be while it says nothing: zeros, to the end of the image.

    What stands before everything else can be given.
    """
    tables = _segment(0xDB, b"\0" + bytes([1] * 64))
    frame = struct.pack(">BHHB", 8, height, width, components)
    frame += b"".join(bytes([index + 1, 0x11, 0]) for index in range(components))
    # One code of one bit for each table: "zero" for the first coefficient, "32767 blocks of zeros" for the others.
    first = _segment(0xC4, b"\0" + bytes([1]) + bytes(15) + b"\0")
    rest = _segment(0xC4, b"\x10" + bytes([1]) + bytes(15) + b"\xe0")
    dc_pixels = bytes(components * (-(-width // 8)) * (-(-height // 8)) // 8 + 1)
    dc = (
        _segment(0xDA, bytes([components]) + b"".join(bytes([i + 1, 0]) for i in range(components)) + b"\0\0\0")
        + dc_pixels
    )
    blocks = (-(-width // 8)) * (-(-height // 8))
    runs = -(-blocks // 32767)
    bits = "0" + "1" * 14  # the code, and the length of a run: 2^14 and 14 bits more
    packed = int((bits * runs).ljust(-(-15 * runs // 8) * 8, "0"), 2).to_bytes(-(-15 * runs // 8))
    ac = _segment(0xDA, b"\1\1\0\1\x3f\0") + packed.replace(b"\xff", b"\xff\0")
    return b"\xff\xd8" + before + tables + _segment(0xC2, frame) + first + rest + dc + (scans - 1) * ac + b"\xff\xd9"


def directory(entries: int, payload: int, *, following: int = 0, more: bytes = b"") -> bytes:
    """A TIFF header, and a directory whose entries all refer to the same bytes, which follow it."""
    start = 8 + 2 + 12 * (entries + len(more) // 12) + 4
    tags = b"".join(struct.pack("<HHII", 40000 + index % 20000, 7, payload, start) for index in range(entries))
    count = struct.pack("<H", entries + len(more) // 12)
    return b"II*\0" + struct.pack("<I", 8) + count + more + tags + struct.pack("<I", following) + bytes(payload)


def tiff_entries(width: int, height: int, offset: int = 0) -> bytes:
    """What a grey image without compression has to say."""
    values = [(256, width), (257, height), (258, 8), (259, 1), (262, 1), (273, offset), (277, 1), (278, height)]
    values.append((279, width * height))
    return b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values)


def pages(count: int) -> bytes:
    """A TIFF of so many pages, all of the same pixels."""
    content = bytearray(b"II*\0" + struct.pack("<I", 8))
    size = 2 + 9 * 12 + 4
    for page in range(count):
        content += struct.pack("<H", 9) + tiff_entries(8, 8)
        content += struct.pack("<I", 8 + size * (page + 1) if page + 1 < count else 0)
    return bytes(content) + bytes(64)


def strips(count: int) -> bytes:
    """A TIFF with one row of one pixel in each strip."""
    start = 8 + 2 + 9 * 12 + 4
    entries = [(256, 4, 1, 1), (257, 4, 1, count), (258, 4, 1, 8), (259, 4, 1, 1), (262, 4, 1, 1)]
    entries += [(273, 4, count, start), (277, 4, 1, 1), (278, 4, 1, 1), (279, 4, count, start + 4 * count)]
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    tables = struct.pack("<I", 8) * count + struct.pack("<I", 1) * count
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 9) + body + NOTHING + tables


def webp(width: int, height: int, *, exif: bytes = b"") -> bytes:
    """One colour, without losses."""
    buffer = BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "WEBP", lossless=True, exif=exif, method=0)
    return buffer.getvalue()


def rle_bitmap(side: int, runs: int) -> bytes:
    """A BMP in which each run is one pixel."""
    head = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, 2 * runs, 1, 1, 256, 0)
    start = 14 + 40 + 1024
    return b"BM" + struct.pack("<IHHI", start + 2 * runs, 0, 0, start) + head + bytes(1024) + b"\1\0" * runs


def sparse(beginning: bytes, size: int) -> Callable[[Path], None]:
    """A file that announces many bytes, and holds few."""

    def write(path: Path) -> None:
        path.write_bytes(beginning)
        os.truncate(path, size)

    return write


def flat_png(side: int, depth: int, kind: int) -> bytes:
    """One colour, in as few bytes as deflate can make of it."""
    rows = side * (1 + (side * depth * (3 if kind == 2 else 1) + 7) // 8)
    pixels = compressed_zeros(-(-rows // MIB))
    return png_of(side, side, depth, kind, chunk(b"IDAT", pixels))


Maker = Callable[[], bytes]


def images() -> dict[str, tuple[str, Maker]]:
    """By what they do: the suffix, and a function that makes the content."""
    return {name: (".jpg", make) for name, make in _jpegs().items()} | {
        name: (suffix, make)
        for suffix, makers in ((".png", _pngs()), (".tif", _tiffs()), (".webp", _webps()), (".bmp", _bitmaps()))
        for name, make in makers.items()
    }


def _jpegs() -> dict[str, Maker]:
    exif = b"Exif\0\0" + directory(2500, 34_000)
    return {
        "3,000 scans": lambda: jpeg(4096, 4096, scans=3000),
        "100 scans of a large image": lambda: jpeg(16_000, 16_000, scans=100),
        "3 scans of a large image": lambda: jpeg(16_000, 16_000, scans=3),
        "40 scans, which are few enough": lambda: jpeg(5100, 5100, scans=40),
        "50,000 scans of a small image": lambda: jpeg(512, 512, scans=50_000),
        "scans of four components": lambda: jpeg(8000, 8000, scans=30, components=4),
        "junk before the first marker": lambda: b"\xff\xd8\xff" + bytes(8 * MIB) + jpeg(8, 8)[2:],
        "a million comments": lambda: jpeg(8, 8, _segment(0xFE, b"") * 10**6),
        "EXIF entries that share their bytes": lambda: jpeg(64, 64, _segment(0xE1, exif)),
        "EXIF in many segments": lambda: jpeg(
            64, 64, _segment(0xE1, exif) + _segment(0xE1, b"Exif\0\0" + bytes(60_000)) * 20
        ),
        "an MPF directory that shares its bytes": lambda: jpeg(
            64, 64, _segment(0xE2, b"MPF\0" + directory(2500, 34_000))
        ),
    }


def _pngs() -> dict[str, Maker]:
    text = b"comment\0" + bytes(8)
    profile = b"a\0\0" + zlib.compress(bytes(MIB - 9), 9)
    pixels = chunk(b"IDAT", zlib.compress(bytes(8 * 25)))
    return {
        "empty pieces of pixels": lambda: png_of(8, 8, 8, 2, chunk(b"IDAT", b"") * 500_000, pixels),
        "200,000 texts before the pixels": lambda: png_of(8, 8, 8, 2, chunk(b"tEXt", text) * 200_000, pixels),
        "200,000 texts behind the pixels": lambda: png_of(8, 8, 8, 2, pixels, chunk(b"tEXt", text) * 200_000),
        "200,000 unknown chunks": lambda: png_of(8, 8, 8, 2, chunk(b"abCd", b"x") * 200_000, pixels),
        "2,000 colour profiles of a MiB": lambda: png_of(8, 8, 8, 2, chunk(b"iCCP", profile) * 2000, pixels),
        "EXIF of a PNG that shares its bytes": lambda: png_of(
            8, 8, 8, 2, chunk(b"eXIf", directory(20_000, MIB)), pixels
        ),
        "2²⁸ pixels of one bit": lambda: flat_png(16_384, 1, 0),
        "2²⁸ pixels of one colour": lambda: flat_png(16_384, 8, 2),
        "as many pixels of one colour as may be": lambda: flat_png(5990, 8, 2),
        "as many pixels of one grey as may be": lambda: flat_png(8470, 8, 0),
        "as many pixels of 16 bits as may be": lambda: flat_png(4890, 16, 0),
    }


def _tiffs() -> dict[str, Maker]:
    return {
        "TIFF entries that share their bytes": lambda: directory(5000, MIB, more=tiff_entries(8, 8, 8)),
        "10,000 pages": lambda: pages(10_000),
        "150,000 strips": lambda: strips(150_000),
        "pages that go round in a circle": lambda: directory(0, 64, following=8, more=tiff_entries(8, 8, 8)),
    }


def _webps() -> dict[str, Maker]:
    return {
        "a large WebP of one colour": lambda: webp(16_383, 4_000) + bytes(40_000),
        "EXIF of a WebP that shares its bytes": lambda: webp(64, 64, exif=b"Exif\0\0" + directory(20_000, MIB)),
    }


def _bitmaps() -> dict[str, Maker]:
    return {"four million runs": lambda: rle_bitmap(2048, 4 * MIB)}
