"""What a file says about an image besides its pixels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from PIL import ImageFile
from PIL.TiffImagePlugin import TiffImageFile

from oneway.data.decode.images import only_upper_bits, open_content, open_image, orientation_of
from oneway.data.decode.many_bands import FIRST
from oneway.data.decode.structure import SAMPLES, ManyBands, directories

ANIMATED = ("PNG", "WEBP", "AVIF")
"""Formats whose further frames are images of their own; those of a JPEG are previews, or depth maps."""

FURTHER_BAND = ("RGBA", "RGBX", "RGBa", "LA", "La", "PA")  # kinds of pixels with a band that is no colour

MOST_PAGES = 10_000
"""Pages of a TIFF that are counted."""

REDUCED, TRANSPARENCY = 1, 4  # bits of how a page of a TIFF relates to the one before: a smaller copy, or a mask


@dataclass(frozen=True)
class Header:
    """What a file says about an image besides its pixels."""

    orientation: int  # the EXIF orientation that `read_image` undoes: 1 is upright, 5 to 8 lie on their side
    deep: bool  # whether its samples have more than 8 bits, of which `read_image` keeps the upper 8
    pages: int  # how many pictures are in the file, of which `read_image` gives the first; at most MOST_PAGES
    further_band: bool = False  # whether it has one besides its colours, such as alpha or infra-red, which is dropped


def read_header(path: Path) -> Header:
    """What a file says about the image that `read_image` gives."""
    try:
        with open_image(path) as image:
            deep = image.mode.startswith("I") or only_upper_bits(image)
            samples = image.tag_v2.get(SAMPLES, 1) if isinstance(image, TiffImageFile) else 0
            further = image.mode in FURTHER_BAND or samples > len(image.getbands())
            return Header(orientation_of(image), deep, _pages(image), further)
    except ManyBands as found:
        with open_content(path, None) as file:
            return Header(1, found.bits > 8, _count_pages(file), found.bands > len(FIRST))


def _pages(image: ImageFile.ImageFile) -> int:
    """The number of pages, as far as they can be read: damage behind the first does not matter to it."""
    if image.format == "GIF":
        return 2 if getattr(image, "is_animated", False) else 1  # counting them all would take long
    if image.format != "TIFF":
        return getattr(image, "n_frames", 1) if image.format in ANIMATED else 1
    assert image.fp is not None
    return _count_pages(image.fp)


def _count_pages(file: IO[bytes]) -> int:
    _, *others = islice(directories(file), MOST_PAGES)  # of a TIFF
    return 1 + sum(not page.subfile & (REDUCED | TRANSPARENCY) for page in others)
