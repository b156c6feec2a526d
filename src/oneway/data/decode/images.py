"""Reads image files of any origin: common formats and pixel types become RGB bytes; every failure is one error.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from oneway.common.errors import UserError
from oneway.data.dataset import Bytes

FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP")
SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".tif", ".tiff", ".bmp"})  # in lower case
CLUTTER = ("thumbs.db", "desktop.ini", "__macosx")  # what file managers and archives leave behind, in lower case

MOST_PIXELS = 2**28
"""Images with more are refused; Pillow would reserve a GiB for this many."""

PLAUSIBLE_PIXELS = 2**24
"""A file of any length may announce this many; of a longer image, the file must have enough bytes for it."""

PIXELS_PER_BYTE = {"PNG": 8 * 1032, "TIFF": 8 * 1032}
"""Pixels that a byte of a file can hold: eight of one bit each, compressed by deflate at most 1032 times."""
PIXELS_PER_BYTE_ELSEWHERE = 8 * 64
"""At least a bit for each 8×8 block, as in a JPEG; other formats need no less."""

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes an image upright, by its EXIF orientation."""
SIDEWAYS = (5, 6, 7, 8)

DARK = 16
"""A value that some pixel of any photograph reaches; 12 bits of a camera, stored in 16, stay below."""

ANIMATED = ("PNG", "WEBP")
"""Formats whose further frames are images of their own; those of a JPEG are previews, or depth maps."""

MOST_PAGES = 10_000
"""Pages of a TIFF that are counted: to find one, Pillow compares it with all before."""

SUBFILE = 254  # the tag of a TIFF that says how a page relates to the one before
REDUCED, TRANSPARENCY = 1, 4  # bits of it: a smaller copy, or a mask


@dataclass(frozen=True)
class Header:
    """What a file says about an image besides its pixels."""

    orientation: int  # the EXIF orientation that `read_image` undoes: 1 is upright, 5 to 8 lie on their side
    deep: bool  # whether its samples have more than 8 bits, of which `read_image` keeps the upper 8
    pages: int  # how many pictures are in the file, of which `read_image` gives the first; at most MOST_PAGES


def hidden(path: PurePath) -> bool:
    """Whether a file is hidden or clutter, by its name or by that of a folder on the relative path to it."""
    return any(part.startswith(".") or part.lower() in CLUTTER for part in path.parts)


class Unreadable(UserError):
    """A file that cannot be decoded at all: missing, damaged, or of a kind that is not read."""


def read_image(path: Path) -> Bytes:
    """H×W×3 in RGB, upright as its EXIF orientation says.

    Alpha is dropped, palettes are looked up, and of samples with 16 bits the upper 8 remain: 65535 becomes 255, and the
    4095 of a camera with 12 bits becomes 15. Of several frames the first is read.

    Raises:
        UserError: The file is missing, damaged, too large, or of another kind; says which.
    """
    with open_image(path) as image:
        turn = TURNS.get(_orientation(image))
        rgb = _as_rgb(path, image)
        return np.asarray(rgb if turn is None else rgb.transpose(turn))


def image_size(path: Path) -> tuple[int, int]:
    """Height and width of what `read_image` gives, from the file's header."""
    with open_image(path) as image:
        width, height = image.size
        return (width, height) if _orientation(image) in SIDEWAYS else (height, width)


def read_header(path: Path) -> Header:
    """What a file says about the image that `read_image` gives."""
    with open_image(path) as image:
        return Header(_orientation(image), image.mode.startswith("I") or only_upper_bits(image), _pages(image))


def only_upper_bits(image: Image.Image) -> bool:
    """Whether Pillow gives only the upper 8 of 16 bits, as it does where there are several channels."""
    return ";16" in str(getattr(image, "tile", "")) and not image.mode.startswith("I")


def bits_in_use(brightest: int) -> tuple[int, int]:
    """How many of 16 bits are in use if the upper 8 are at most `brightest`, and the factor to use all 16."""
    bits = 8 + brightest.bit_length()
    return bits, 2 ** (16 - bits)


@contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """A file of one of FORMATS, its header read; whatever fails in the block becomes a UserError."""
    if not path.is_file():  # a pipe would block
        raise Unreadable(f"{path}: {'not a file' if path.exists() else 'no such file'}.")
    try:
        with _pillow, Image.open(path, formats=FORMATS) as image:
            _refuse_implausible(path, image)
            yield image
    except UserError:
        raise
    except UnidentifiedImageError:
        kinds = ", ".join(FORMATS)
        raise Unreadable(f"{path}: damaged, or of another kind than {kinds}. Save it again, or remove it.") from None
    except Exception as error:  # hostile bytes make Pillow raise errors of some twenty kinds
        cause = " ".join(str(error).split())[:200] or type(error).__name__
        raise Unreadable(f"{path}: cannot be read as an image ({cause}). Save it again, or remove it.") from error


class _PillowSettings:
    """Within the block, Pillow opens images up to our limit, and does not warn; afterwards all is as it was.

    Its own limit would refuse what we allow, and its warnings about damaged files do not name them; our errors do. Both
    are settings of the whole process: of threads that decode at the same time, the first changes and the last restores.
    """

    def __init__(self) -> None:
        self.lock, self.users = threading.Lock(), 0

    def __enter__(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, MOST_PIXELS
                self.filters = warnings.catch_warnings()
                self.filters.__enter__()
                warnings.filterwarnings("ignore", module=r"PIL\.")

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                Image.MAX_IMAGE_PIXELS = self.limit
                self.filters.__exit__(None, None, None)


_pillow = _PillowSettings()


def _refuse_implausible(path: Path, image: Image.Image) -> None:
    """Raises a UserError where a header announces more pixels than we decode, or than the file can hold."""
    width, height = image.size
    pixels, size = width * height, path.stat().st_size
    if not pixels:
        raise Unreadable(f"{path}: an image of {width}×{height} pixels. Save it again, or remove it.")
    if pixels > MOST_PIXELS:
        raise UserError(
            f"{path}: {width}×{height} pixels are more than the {MOST_PIXELS} we decode. Cut it into tiles."
        )
    per_byte = PIXELS_PER_BYTE.get(image.format or "", PIXELS_PER_BYTE_ELSEWHERE)
    if pixels > max(PLAUSIBLE_PIXELS, per_byte * size):
        raise Unreadable(f"{path}: damaged; its header announces {width}×{height} pixels, in a file of {size} bytes.")


def _orientation(image: Image.Image) -> int:
    """From the data before the pixels, of an image that is not decoded yet; a PNG may have more behind them."""
    if image.format == "TIFF":
        return 1  # there it belongs to the format, and Pillow applies it
    try:
        found = Image.Image.getexif(image).get(ExifTags.Base.Orientation)
    except Exception:  # viewers show an image with damaged EXIF data as it is stored, and so do we
        return 1
    return found if isinstance(found, int) and found in TURNS else 1


def _pages(image: Image.Image) -> int:
    """The number of pages, as far as they can be read: damage behind the first does not matter to it."""
    if not isinstance(image, TiffImageFile):
        return getattr(image, "n_frames", 1) if image.format in ANIMATED else 1
    count = 1
    try:
        for page in range(1, MOST_PAGES):
            image.seek(page)
            count += not image.tag_v2.get(SUBFILE, 0) & (REDUCED | TRANSPARENCY)
    except Exception:  # EOFError behind the last, and whatever else damaged bytes give rise to
        pass
    return count


def _as_rgb(path: Path, image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise UserError(f"{path}: floating-point samples have no agreed range. Save it with 8 or 16 bits per sample.")
    if image.mode.startswith("I"):
        samples = np.asarray(image)
        low, high = int(samples.min()), int(samples.max())
        if low < 0 or high > 0xFFFF:
            raise UserError(f"{path}: samples from {low} to {high} need more than 16 bits. Save it with 8 or 16.")
        image = Image.fromarray((samples >> 8).astype(np.uint8))
    image.info.pop("transparency", None)  # Pillow would warn that it is lost, and it is meant to be
    return image.convert("RGB")
