"""Files that lie about their size: headers that announce too much, and images that expand to gigabytes."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from io import BytesIO

from PIL import Image

from data.encoders import chunk, png_of
from oneway.data.decode.images import read_image
from reliability.attacks import Attack, checkpoint_of, file, load_a_model, load_checkpoint, read_a_mask


def attacks() -> Iterator[Attack]:
    """For models and checkpoints, images and masks."""
    yield from _headers()
    yield from _bombs()


def _headers() -> Iterator[Attack]:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for kind, content in {
        "a header of 2⁶³ bytes": _sized(2**63, b"{}"),
        "a header longer than the file": _sized(10**6, b"{}"),
        "brackets": _sized(10**5, b"[" * 10**5),
        "a shape that overflows": _header({"a": {**entry, "shape": [2**62, 2**62]}}) + bytes(8),
        "a shape of 2⁴⁰": _header({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}) + bytes(8),
        "offsets beyond the end": _header({"a": {**entry, "data_offsets": [0, 2**60], "shape": [2**58]}}),
        "offsets backwards": _header({"a": {**entry, "data_offsets": [8, 0]}}) + bytes(8),
        "tensors on one another": _header({"a": entry, "b": entry}) + bytes(8),
        "a hole": _header({"a": {**entry, "data_offsets": [8, 16]}}) + bytes(16),
        "metadata of another type": _header({"__metadata__": {"oneway": 5}, "a": entry}) + bytes(8),
        "metadata of brackets": _header({"__metadata__": {"oneway": "[" * 10**5}, "a": entry}) + bytes(8),
    }.items():
        yield Attack(f"{kind} in a model", file("m.safetensors", content), load_a_model)
        yield Attack(f"{kind} in a checkpoint", checkpoint_of(content), load_checkpoint)
    huge = "{" + f'"seal": "{"0" * 2**25}"' + "}"
    yield Attack("a manifest of 32 MiB", checkpoint_of(b"", huge.encode()), load_checkpoint)
    yield Attack("a manifest of brackets", checkpoint_of(b"", b"[" * 10**5), load_checkpoint)


def _sized(length: int, text: bytes) -> bytes:
    return struct.pack("<Q", length) + text


def _header(tree: object) -> bytes:
    text = json.dumps(tree).encode()
    return _sized(len(text), text)


def _bombs() -> Iterator[Attack]:
    zeros = compressed_zeros(512)
    pixels = chunk(b"IDAT", zlib.compress(bytes(8 * 25)))
    tiff = BytesIO()
    Image.new("L", (64, 64)).save(tiff, "TIFF", compression="tiff_deflate")
    for kind, content in {
        "pixels of 512 MiB for an image of 8×8": _png(8, 8, chunk(b"IDAT", zeros)),
        "a text of 512 MiB": _png(8, 8, chunk(b"zTXt", b"a\0\0" + zeros), pixels),
        "an international text of 512 MiB": _png(8, 8, chunk(b"iTXt", b"a\0\1\0\0\0" + zeros), pixels),
        "a colour profile of 512 MiB": _png(8, 8, chunk(b"iCCP", b"a\0\0" + zeros), pixels),
        "a side of 2³¹ pixels": _png(2**31 - 1, 2**31 - 1, pixels),
        "more pixels than a few bytes hold": _png(2**14, 2**14, pixels),
        "a TIFF whose strips lie": tiff.getvalue().replace(struct.pack("<I", 64), struct.pack("<I", 2**20)),
    }.items():
        yield Attack(f"{kind}, as an image", file("a.png", content), lambda here: read_image(here / "a.png"))
        yield Attack(f"{kind}, as a mask", file("a.png", content), read_a_mask)


def _png(width: int, height: int, *chunks: bytes) -> bytes:
    return png_of(width, height, 8, 2, *chunks)


def compressed_zeros(mebibytes: int) -> bytes:
    """What zlib makes of so many zeros, in a moment: a block that refers to nothing before it may be repeated."""
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    block = deflate.compress(bytes(2**20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    checksum = (mebibytes * 2**20 % 65521 << 16) + 1  # Adler-32 of zeros
    return b"\x78\x9c" + mebibytes * block + deflate.flush() + struct.pack(">I", checksum)
