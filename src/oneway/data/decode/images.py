"""Reads image files of any origin: common formats and pixel types become RGB bytes; every failure is one error.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from os import SEEK_END
from pathlib import Path, PurePath
from typing import BinaryIO

import numpy as np
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError, features
from PIL.TiffImagePlugin import TiffImageFile

from oneway.common.bounded import open_regular
from oneway.common.errors import UserError
from oneway.data.dataset import Bytes
from oneway.data.decode.jpeg import Box, decode_part
from oneway.data.decode.many_bands import read_bands, upper_bits
from oneway.data.decode.pillow import PillowSettings
from oneway.data.decode.plausible import BYTES_PER_BYTE, FREE_BYTES, MOST_PIXELS, Unreadable, refuse_implausible
from oneway.data.decode.structure import (
    FLOATING_SAMPLES,
    FOUR,
    ManyBands,
    directories,
    examine,
    many_bands,
    odd_samples,
)
from oneway.data.image_style import COLOURS, MOST_BITS, Bands, ImageStyle

OPTIONAL = {"AVIF": ("avif", {".avif"}), "JPEG2000": ("jpg_2000", {".jp2", ".j2k"})}
"""Formats that not every Pillow reads: its name for the library behind each, and suffixes."""

INSTALLED = tuple(kind for kind, (library, _) in OPTIONAL.items() if features.check(library))
FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", *INSTALLED)
SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"}).union(
    *(OPTIONAL[kind][1] for kind in INSTALLED)
)  # in lower case
CLUTTER = ("thumbs.db", "desktop.ini", "__macosx")  # what file managers and archives leave behind, in lower case

STRIPE = 2**19
"""Pixels that are converted at once: bounds the memory that is needed beside the image and the result."""

MOST_OF_TILES = 200  # characters of how Pillow describes the first of them
GDAL = "gdal_translate -b 4 -b 3 -b 2 FROM.tif TO.tif"

SIDEWAYS = (5, 6, 7, 8)
AS_STORED: dict[int, Callable[[Bytes], Bytes]] = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.swapaxes(0, 1),
    6: lambda upright: np.rot90(upright, 1),
    7: lambda upright: upright[::-1, ::-1].swapaxes(0, 1),
    8: lambda upright: np.rot90(upright, -1),
}
"""Views of an upright image in which its pixels lie as they are stored, by EXIF orientation."""


DARK = 16
"""A value that some pixel of any photograph reaches; 12 bits of a camera, stored in 16, stay below."""

FEW_LEVELS = 64
"""A value that the brightest of many photographs reaches; reflectance times 10,000 and 14 bits of a camera do not."""


def hidden(path: PurePath) -> bool:
    """Whether a file is hidden or clutter, by its name or by that of a folder on the relative path to it."""
    return any(part.startswith(".") or part.lower() in CLUTTER for part in path.parts)


def read_image(path: Path, content: bytes | None = None, style: ImageStyle = COLOURS) -> Bytes:
    """H×W×3 in RGB, upright as its EXIF orientation says.

    Alpha is dropped, palettes are looked up, and of samples with 16 bits the upper 8 remain: 65535 becomes 255, and the
    4095 of a camera with 12 bits becomes 15, unless the style says so. Of several frames the first is read.

    Args:
        path: The file, as messages name it.
        content: What it holds, where that has been read already.
        style: Which bands are seen, and how many bits of 16 are in use; by default the colours, and all.

    Raises:
        UserError: The file is missing, damaged, too large, or of another kind, or does not fit the style; says which.
    """
    try:
        return _read_colours(path, content, style)
    except ManyBands as found:
        return _read_many(path, content, found, style)


def _read_colours(path: Path, content: bytes | None, style: ImageStyle) -> Bytes:
    bands = style.bands
    with open_image(path, content) as file:
        orientation = orientation_of(file)
        if bands is not None and max(bands) > FOUR and (found := many_bands(file.fp)) is not None:
            raise found
        if style.bits < MOST_BITS and only_upper_bits(file):
            raise _all_bits(path, file)
        if bands is not None and _has_fourth_band(file):
            file._mode = "RGBX"  # or Pillow would leave it out
        if bands is not None and (file.mode == "P" or max(bands) > len(file.getbands())):
            raise UserError(
                f"{path}: {len(file.getbands())} bands can be read, and band {max(bands)} is asked for (`bands` in the "
                "dataset.yaml of the images that were learnt from)."
            )
        image = _upper_bits(path, file, style.bits) if file.mode.startswith("I") else file
        if image.mode == "F":
            raise _unusual(path, FLOATING_SAMPLES)
        image.info.pop("transparency", None)  # Pillow would warn that it is lost, and it is meant to be
        if orientation == 1 and image.width * image.height <= STRIPE:
            return _colours(image, bands)
        if orientation == 1 and bands is None and image.mode == "RGB" and (pixels := _unlocked(image)) is not None:
            return pixels
        size = image.size if orientation in SIDEWAYS else image.size[::-1]
        upright = np.empty((*size, 3), dtype=np.uint8)
        stored = AS_STORED[orientation](upright)
        for rows, stripe in stripes(image):
            stored[rows] = _colours(stripe, bands)
        return upright


def _unlocked(image: Image.Image) -> Bytes | None:
    """H×W×3 of a picture in RGB, copied while other threads run; None where there are no files in memory.

    Pillow holds Python's lock while it hands pixels over, and gives it away while it writes them to a file.
    """
    image.load()  # here, its errors are those of the image
    if not hasattr(os, "memfd_create"):
        return None
    with suppress(OSError), os.fdopen(os.memfd_create("pixels"), "w+b", buffering=0) as file:
        image.save(file, "PPM")
        pixels = np.empty((image.height, image.width, 3), np.uint8)
        file.seek(-pixels.nbytes, SEEK_END)
        file.readinto(pixels.data)  # a memory map would keep the file open as long as the pixels
        return pixels
    return None


def _read_many(path: Path, content: bytes | None, found: ManyBands, style: ImageStyle) -> Bytes:
    """As `read_image`, of a TIFF with more bands than Pillow reads."""
    with _named(path), open_content(path, content) as file:
        size = file.seek(0, SEEK_END)
        pixels = found.height * found.width
        memory = pixels * found.bands * -(-found.bits // 8)
        if not 0 < pixels <= MOST_PIXELS or memory > max(FREE_BYTES, BYTES_PER_BYTE * size):
            extent = f"{found.width}×{found.height} pixels of {found.bands} bands, in a file of {size} bytes,"
            raise UserError(f"{path}: {extent} are none, or more than we decode. Cut it into tiles.")
        file.seek(0)
        stored = read_bands(path, file, found, style)
    upright = np.empty((*found.size, 3), dtype=np.uint8)
    AS_STORED.get(found.orientation, AS_STORED[1])(upright)[:] = stored
    return upright


def _has_fourth_band(image: ImageFile.ImageFile) -> bool:
    """Whether a TIFF has one behind its colours that is no alpha, as those of infra-red cameras do."""
    return image.format == "TIFF" and image.mode == "RGB" and "'RGBX" in str(image.tile)[:MOST_OF_TILES]


def _colours(image: Image.Image, bands: Bands | None) -> Bytes:
    if bands is None:
        return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
    return np.stack([np.asarray(image.getchannel(band - 1)) for band in bands], axis=2)


def read_part(
    path: Path,
    content: bytes,
    choose: Callable[[tuple[int, int]], Box],
    factor: Callable[[tuple[int, int]], int] = lambda size: 1,
) -> tuple[tuple[int, int], Box, Bytes]:
    """A part of what `read_image` gives: height and width of the whole, which part, and its pixels.

    The part is chosen by height and width: its first row and column, and those behind its last. `factor` is how many
    times smaller an image of some height and width is wanted, see `reduced`.

    Raises:
        UserError: As `read_image` does.
    """
    with suppress(ManyBands), open_image(path, content) as file:
        size = file.height, file.width
        if file.mode == "RGB" and factor(size) == 1 and orientation_of(file) == 1:
            top, left, bottom, right = box = choose(size)
            part = decode_part(content, size, box) if file.format == "JPEG" else None
            if part is None:
                part = np.asarray(file.crop((left, top, right, bottom)))  # of which the rest is no copy
            return size, box, part
    image = read_image(path, content)
    whole = reduced(image, factor((image.shape[0], image.shape[1])))
    size = whole.shape[0], whole.shape[1]
    top, left, bottom, right = box = choose(size)
    return size, box, whole[top:bottom, left:right]


def reduced(image: Bytes, factor: int) -> Bytes:
    """An H×W×3 image at 1/factor of its height and width, rounded up: averaged over squares of pixels."""
    return image if factor == 1 else np.asarray(Image.fromarray(image).reduce(factor))


def stripes(image: Image.Image) -> Iterator[tuple[slice, Image.Image]]:
    """The image in parts of all its columns and some of its rows; what is said of an image holds of each."""
    height = max(1, STRIPE // image.width)
    for top in range(0, image.height, height):
        rows = slice(top, min(top + height, image.height))
        yield rows, image.crop((0, rows.start, image.width, rows.stop)) if height < image.height else image


def image_size(path: Path, content: bytes | None = None) -> tuple[int, int]:
    """Height and width of what `read_image` gives, from the file's header."""
    try:
        with open_image(path, content) as image:
            width, height = image.size
            return (width, height) if orientation_of(image) in SIDEWAYS else (height, width)
    except ManyBands as found:
        return found.size


def only_upper_bits(image: Image.Image) -> bool:
    """Whether Pillow gives only the upper 8 of 16 bits, as it does where there are several channels."""
    return ";16" in str(getattr(image, "tile", "")) and not image.mode.startswith("I")


def bits_in_use(brightest: int) -> int:
    """How many of 16 bits are in use if the upper 8 are at most `brightest`."""
    return max(9, 8 + brightest.bit_length())


@contextmanager
def open_image(path: Path, content: bytes | None = None) -> Iterator[ImageFile.ImageFile]:
    """A file of one of FORMATS, or its content, with the header read; whatever fails in the block becomes a UserError.

    A pipe or a device is refused.
    """
    with _named(path), open_content(path, content) as file:
        scans = examine(file)
        try:
            with _pillow, Image.open(file, formats=FORMATS) as image:
                refuse_implausible(path, image, file, scans)
                yield image
        except UnidentifiedImageError:
            if (unknown := many_bands(file)) is not None:
                raise unknown from None
            if why := odd_samples(file):
                raise _unusual(path, why) from None
            raise


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Whatever fails in the block becomes a UserError that names the file."""
    try:
        yield
    except ManyBands as found:
        raise ManyBands(found.directory, str(path)) from None
    except UserError:
        raise
    except UnidentifiedImageError:
        kinds = ", ".join(FORMATS)
        message = f"{path}: damaged, or of another kind than {kinds}. Save it again as one of these, or remove it."
        raise Unreadable(message) from None
    except Exception as error:  # hostile bytes make decoders raise errors of some twenty kinds
        cause = " ".join(str(error).split())[:200] or type(error).__name__
        raise Unreadable(f"{path}: cannot be read as an image ({cause}). Save it again, or remove it.") from error


def open_content(path: Path, content: bytes | None) -> BinaryIO:
    """A file, or what it holds where that has been read already."""
    if content is not None:
        return BytesIO(content)
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise Unreadable(f"{path}: no such file.") from None
    except UserError as error:
        raise Unreadable(str(error)) from None


_pillow = PillowSettings(MOST_PIXELS)


def orientation_of(image: Image.Image) -> int:
    """The EXIF orientation in what precedes the pixels of an image; a PNG may have more behind them."""
    if image.format == "TIFF":
        return 1  # there it belongs to the format, and Pillow applies it
    try:
        found = Image.Image.getexif(image).get(ExifTags.Base.Orientation)
    except Exception:  # viewers show an image with damaged EXIF data as it is stored, and so do we
        return 1
    return found if isinstance(found, int) and found in AS_STORED else 1


def _upper_bits(path: Path, image: Image.Image, bits: int) -> Image.Image:
    """An image of 16 bits, of which so many are in use, in 8."""
    samples = np.asarray(image)
    low, high = int(samples.min()), int(samples.max())
    if low < 0 or high > 0xFFFF:
        raise UserError(f"{path}: samples from {low} to {high} need more than 16 bits. Save it with 8 or 16.")
    return Image.fromarray(upper_bits(path, samples, bits))


def _unusual(path: Path, why: str) -> UserError:
    return UserError(f"{path}: {why}. Save it with 8 or 16 bits per sample.")


def _all_bits(path: Path, file: ImageFile.ImageFile) -> UserError:
    """Raised where Pillow would give the upper 8 bits of several channels, and lower ones are in use."""
    if isinstance(file, TiffImageFile) and file.fp is not None and (first := next(directories(file.fp), None)):
        return ManyBands(first, str(path))
    return UserError(
        f"{path}: has colours of 16 bits, of which only the upper 8 can be read from a {file.format}, and `bits` in "
        "dataset.yaml says that lower ones are in use. Save it as TIFF."
    )
