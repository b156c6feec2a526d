"""Formats of files written by hand, from their descriptions."""

from __future__ import annotations

import struct
import zlib


def compress(counts: list[int]) -> str:
    """COCO's run lengths as text: differences from the fourth on, five bits to a character."""
    text = ""
    for index, count in enumerate(counts):
        number, more = count - (counts[index - 2] if index > 2 else 0), True
        while more:
            low, number = number & 31, number >> 5
            more = number != (-1 if low & 16 else 0)
            text += chr((low | 32 if more else low) + 48)
    return text


def chunk(name: bytes, content: bytes) -> bytes:
    """Of a PNG, with its checksum."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png_of(width: int, height: int, depth: int, kind: int, *chunks: bytes) -> bytes:
    """A PNG of these chunks: its header may announce anything."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IEND", b"")


def png(width: int, height: int, depth: int, kind: int, data: bytes) -> bytes:
    """A PNG with these pixels, whatever its header announces."""
    return png_of(width, height, depth, kind, chunk(b"IDAT", zlib.compress(data)))
