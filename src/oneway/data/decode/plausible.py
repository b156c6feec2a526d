"""Image files whose headers announce more than they can hold, or than anyone would wait for: they are not decoded."""

from __future__ import annotations

from os import SEEK_END
from pathlib import Path
from typing import BinaryIO

from PIL import Image, ImageFile

from oneway.common.errors import UserError

MOST_PIXELS = 2**28
"""Images with more are refused; Pillow would reserve a GiB for this many."""

PLAUSIBLE_PIXELS = 2**24
"""A file of any length may announce this many; of a longer image, the file must have enough bytes for it."""

PIXELS_PER_BYTE = {"PNG": 8 * 1032, "TIFF": 8 * 1032}
"""Pixels that a byte of a file can hold: eight of one bit each, compressed by deflate at most 1032 times."""
PIXELS_PER_BYTE_ELSEWHERE = 8 * 64
"""The same for other formats: at least a bit for each 8×8 block, as in a JPEG."""

FREE_BYTES, BYTES_PER_BYTE = 8 * 6000**2, 512
"""Memory that a file of any length may take while it is decoded: a black photograph of 6000×6000 pixels does. To take
more, it must have a byte for so many."""

MOST_STRIPS = 2**16  # of a TIFF without compression; Pillow reads them one by one
MOST_RUN_BYTES = 2**21  # of a BMP with compression; Pillow decodes it in Python


class Unreadable(UserError):
    """A file that cannot be decoded at all: missing, damaged, or of a kind that is not read."""


def refuse_implausible(path: Path, image: ImageFile.ImageFile, file: BinaryIO, scans: int) -> None:
    """Raise a UserError where a header announces more pixels than we decode, or than the file can hold."""
    width, height = image.size
    place = file.tell()
    pixels, size = width * height, file.seek(0, SEEK_END)
    file.seek(place)
    if not pixels:
        raise Unreadable(f"{path}: an image of {width}×{height} pixels. Save it again, or remove it.")
    if pixels > MOST_PIXELS:
        raise UserError(
            f"{path}: {width}×{height} pixels are more than the {MOST_PIXELS} we decode. Cut it into tiles."
        )
    per_byte = PIXELS_PER_BYTE.get(image.format or "", PIXELS_PER_BYTE_ELSEWHERE)
    if pixels > max(PLAUSIBLE_PIXELS, per_byte * size):
        raise Unreadable(f"{path}: damaged; its header announces {width}×{height} pixels, in a file of {size} bytes.")
    memory = pixels * _bytes_per_pixel(image, scans)
    if memory > max(FREE_BYTES, BYTES_PER_BYTE * size):
        raise Unreadable(
            f"{path}: its {size} bytes would take {memory // 2**20} MiB as {width}×{height} pixels, as nothing but a "
            "nearly empty image does. Cut it into tiles, or save it with less compression."
        )
    codecs = {str(tile[0]) for tile in image.tile} if len(image.tile) <= MOST_STRIPS else {"strips"}
    if "strips" in codecs or ("bmp_rle" in codecs and size > MOST_RUN_BYTES):
        raise Unreadable(f"{path}: would take very long to decode as it is stored. Save it as PNG.")


def _bytes_per_pixel(image: Image.Image, scans: int) -> int:
    """Memory that decoding takes at most: Pillow's image, and the result, or a JPEG's coefficients and what is kept."""
    bands = len(image.getbands())
    if bands == 1:
        return 12 if image.mode[0] in "IF" else 4
    return 4 + max(4, 2 * bands + 1 if scans > 1 else 0)
