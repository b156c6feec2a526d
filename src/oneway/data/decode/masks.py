"""Reads masks: files that hold, for each pixel, a number or a colour that stands for a class.

Nothing is converted on the way. The index into a palette is the number, greyscale is numbers and never colours, and
EXIF orientation does not apply: a mask is no photograph.

Shapes: a mask has H×W pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.dataset import Bytes, Colour
from oneway.data.decode import matlab
from oneway.data.decode.images import SUFFIXES, only_upper_bits, open_image, stripes

Numbers = npt.NDArray[np.int32] | npt.NDArray[np.uint8]

LOSSY = ("JPEG", "MPO", "WEBP", "AVIF", "JPEG2000", "jpeg", "tiff_jpeg", "webp")
"""Formats, and compressions within TIFF, that change values; some do not say whether they are lossless."""

MASK_SUFFIXES = SUFFIXES | {matlab.SUFFIX}

NO_NUMBER = -(2**31)
"""Stands for samples of floating-point masks that are no number, or below all that are: these have no class."""

LEVELS = frozenset(range(256))
"""Of greyscale in 8 bits: where each stands for a class, losses matter only along borders."""

VERY_NEAR = 16  # levels of a channel by which noise or losses may have changed a colour
BLOCK = 2**20  # pixels looked up at once: their indices take eight times the memory of their labels


@dataclass(frozen=True)
class RawMask:
    """A mask as it is stored."""

    values: Numbers  # H×W: the number of each pixel, or 0xRRGGBB where `coloured`; in a mask of one bit, 0 or 1
    coloured: bool  # whether it has three channels that differ somewhere; where they agree, it is greyscale
    palette: tuple[Colour, ...] | None  # the colours in which the numbers of a palette image are shown
    mode: str  # Pillow's name for the kind of its pixels


@dataclass(frozen=True)
class Coding:
    """What the numbers or the colours of masks stand for."""

    table: Mapping[int, int]  # class index, or IGNORE, of each number, or of each colour as 0xRRGGBB
    coloured: bool
    names: tuple[str, ...]
    tolerance: int = field(default=0, repr=False)  # up to which each channel of a colour may differ from a known one


def pack(colour: Colour) -> int:
    """A colour as one number, 0xRRGGBB."""
    red, green, blue = colour
    return red << 16 | green << 8 | blue


def unpack(packed: int) -> Colour:
    """The colour that `pack` was given."""
    return packed >> 16, packed >> 8 & 0xFF, packed & 0xFF


def read_raw(path: Path, lossy: bool = False) -> RawMask:
    """A mask as it is stored; a UserError where it cannot be read, or, unless `lossy` will do, only with losses."""
    if path.suffix.lower() == matlab.SUFFIX:
        return RawMask(matlab.read_index_map(path), coloured=False, palette=None, mode="I")
    with open_image(path) as image:
        _refuse_unusable(path, image, lossy)
        small = image.mode in ("1", "L", "LA", "P", "PA")
        size = image.size[::-1]
        values: Numbers = np.empty(size, dtype=np.uint8) if small else np.empty(size, dtype=np.int32)
        coloured = False
        for rows, stripe in stripes(image):
            pixels = _whole(path, stripe, rows.start) if image.mode == "F" else np.asarray(stripe)
            values[rows] = pixels[..., 0] if pixels.ndim == 3 else pixels  # without alpha
            if image.mode in ("RGB", "RGBA"):
                red, green, blue = np.moveaxis(pixels[..., :3], 2, 0)
                coloured = coloured or not (np.array_equal(red, green) and np.array_equal(green, blue))
                for channel in (green, blue):
                    values[rows] <<= 8
                    values[rows] |= channel
        if image.mode in ("RGB", "RGBA") and not coloured:
            values &= 0xFF
        return RawMask(values, coloured, palette_of(image), image.mode)


def read_mask(path: Path, coding: Coding) -> Bytes:
    """H×W class indices, or IGNORE; a UserError names a value that stands for nothing, its place, and the way out."""
    raw = read_raw(path, lossy=not coding.coloured and coding.table.keys() >= LEVELS)
    values = _near(_colours(path, raw), coding) if coding.coloured else _numbers(path, raw, coding)
    table = {**coding.table, NO_NUMBER: IGNORE}
    known = np.array(sorted(table), dtype=np.int32)
    meanings = np.array([table[value] for value in known.tolist()], dtype=np.uint8)
    labels = np.empty(values.shape, dtype=np.uint8)
    rows = max(1, BLOCK // values.shape[1])
    for block in (slice(top, top + rows) for top in range(0, len(values), rows)):
        nearest = np.searchsorted(known, values[block]).clip(max=len(known) - 1)
        if not np.array_equal(known[nearest], values[block]):
            raise UserError(f"{path}: {_explain(values, coding)}")
        labels[block] = meanings[nearest]
    return labels


def _refuse_unusable(path: Path, image: Image.Image, lossy: bool) -> None:
    for kind in (image.format, image.info.get("compression")):
        if kind in LOSSY and not lossy:
            name = kind.removeprefix("tiff_").upper()
            raise UserError(
                f"{path}: {name} compression changes values, and a mask must keep them. Export the masks as PNG. "
                f"{about_halves('there are no others, and these')}"
            )
    if not (image.mode in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "F") or image.mode.startswith("I")):
        raise UserError(f"{path}: no mask has pixels of kind {image.mode}. Save it as greyscale, palette or RGB PNG.")
    if only_upper_bits(image):
        raise UserError(f"{path}: several channels of 16 bits. Save it as PNG with 8 bits, or with a single channel.")


def _whole(path: Path, stripe: Image.Image, top: int) -> Numbers:
    """Samples of a floating-point mask, from some row on, as GIS programs save class numbers."""
    samples = np.asarray(stripe)
    nothing = ~(samples > NO_NUMBER)  # also of what is no number
    values = np.where(nothing, NO_NUMBER, samples).astype(np.float64)
    if (odd := (values != np.rint(values)) | (values >= 2**31)).any():
        row, column = np.unravel_index(odd.argmax(), odd.shape)
        raise UserError(
            f"{path}: has the value {samples[row, column]:g} at row {top + row}, column {column}, and the number of a "
            "class is whole. Save the class numbers as whole numbers, of the type Byte or Int16 in a GIS."
        )
    return values.astype(np.int32)


def palette_of(image: Image.Image) -> tuple[Colour, ...] | None:
    """All 256 colours of an image with a palette, black where the file has fewer; None without a palette."""
    if image.mode not in ("P", "PA"):
        return None
    entries = [*(image.getpalette("RGB") or []), *[0] * 768][:768]
    return tuple(zip(entries[::3], entries[1::3], entries[2::3], strict=True))


def about_halves(they: str) -> str:
    """How masks of two classes are read whose values have been changed."""
    return (
        f"If {they} are black and white, `classes: {{0-127: background, 128-255: foreground}}` in dataset.yaml takes "
        "every shade for the nearer of the two."
    )


def alpha_varies(path: Path) -> bool:
    """Whether a mask has alpha, which is not read, and it differs from pixel to pixel; False for what is no mask."""
    if path.suffix.lower() not in SUFFIXES:
        return False
    try:
        with open_image(path) as image:
            if "A" not in image.getbands():
                return False
            low, high = image.getchannel("A").getextrema()
            return low != high
    except UserError:
        return False  # said when the mask is decoded


def about_alpha(path: Path) -> str:
    """What is said of masks whose alpha holds the labels, and of the way out."""
    return (
        f"alpha, which is not read, varies ({path} is the first). If it holds the labels, save it as the mask: "
        f"`magick mogrify -alpha extract {path.parent / '*'}{path.suffix}` does so in place"
    )


def _numbers(path: Path, raw: RawMask, coding: Coding) -> Numbers:
    if raw.coloured:
        raise UserError(
            f"{path}: a mask of colours ({raw.mode}), where each pixel should be the number of its class. Give each "
            "class its colour in dataset.yaml, as `oneway check` proposes, or save it as greyscale or palette PNG."
        )
    # Programs that save black and white in one bit mean 0 and 255 as often as 0 and 1.
    white_is_255 = raw.mode == "1" and 1 not in coding.table and coding.table.get(255, IGNORE) != IGNORE
    return raw.values * np.int32(255) if white_is_255 else raw.values


def _colours(path: Path, raw: RawMask) -> Numbers:
    if raw.palette is not None:
        return np.array([pack(colour) for colour in raw.palette], dtype=np.int32)[raw.values]
    if not raw.mode.startswith("RGB"):
        raise UserError(
            f"{path}: a greyscale mask ({raw.mode}), where dataset.yaml gives each class a colour. List the classes by "
            "number there, or save the mask in these colours."
        )
    if not raw.coloured:
        np.multiply(raw.values, 0x010101, out=raw.values)  # in place, since there may be very many
    return raw.values


def _near(values: Numbers, coding: Coding) -> Numbers:
    """Colours, of which those within the tolerance of a known one are replaced by the nearest such.

    A colour as near to one label as to another stays as it is, and stands for neither.
    """
    known = np.array(sorted(coding.table), dtype=np.int32)
    if not coding.tolerance or not (unknown := np.isin(values, known, invert=True)).any():
        return values
    found, places = np.unique(values[unknown].astype(np.int32), return_inverse=True)
    nearest, labels = found.copy(), np.array([coding.table[value] for value in known.tolist()])
    for block in (slice(start, start + BLOCK // 256) for start in range(0, len(found), BLOCK // 256)):
        apart = np.abs(_channels(found[block])[:, None] - _channels(known)[None])
        within = np.where(apart.max(axis=2) <= coding.tolerance, (apart**2).sum(axis=2), np.iinfo(np.int32).max)
        closest = within.argmin(axis=1)
        least = within.min(axis=1, keepdims=True)
        tied = ((within == least) & (labels != labels[closest][:, None])).any(axis=1)
        near = (least[:, 0] < np.iinfo(np.int32).max) & ~tied
        nearest[block][near] = known[closest[near]]
    snapped = values.copy()
    snapped[unknown] = nearest[places]
    return snapped


def _channels(packed: Numbers) -> Numbers:
    return np.stack([packed >> 16, packed >> 8 & 0xFF, packed & 0xFF], axis=1)


def _explain(values: Numbers, coding: Coding) -> str:
    """Which value stands for nothing, how often and where it first occurs, and what to do about it."""
    unknown = np.isin(values, [*coding.table, NO_NUMBER], invert=True)
    row, column = (int(index) for index in np.unravel_index(unknown.argmax(), unknown.shape))
    value, others = int(values[row, column]), len(np.unique(values[unknown])) - 1
    shown = f"colour {list(unpack(value))}" if coding.coloured else f"value {value}"
    hint, lenient = _nearest(value, coding) if coding.coloured else (f"known are {_enumerate(coding)}", "")
    if value < 0:
        ignored = [value, *(known for known, label in coding.table.items() if label == IGNORE)]
        lenient = f" If it stands for no class, write `ignore: {ignored}` there."
    return (
        f"{(values == value).sum()} pixels have {shown}, which stands for no class, the first at row {row}, "
        f"column {column}{f' (and {others:,} more such values)' if others else ''}; {hint}. "
        f"Correct the mask, or add the value to `classes` or `ignore` in dataset.yaml.{lenient}"
    )


def _nearest(value: int, coding: Coding) -> tuple[str, str]:
    """The known colour that is nearest, and how to have a colour taken for it that is very near."""

    def distance(known: int) -> int:
        return sum((one - other) ** 2 for one, other in zip(unpack(known), unpack(value), strict=True))

    nearest = min(coding.table, key=distance)
    apart = max(abs(one - other) for one, other in zip(unpack(nearest), unpack(value), strict=True))
    lenient = f" `colour_tolerance: {max(8, apart)}` there takes colours for known ones that are so near."
    hint = f"the nearest known colour is {list(unpack(nearest))} ({_meaning(coding, nearest)})"
    return hint, lenient if apart <= VERY_NEAR else ""


def _enumerate(coding: Coding) -> str:
    values = sorted(coding.table)
    if (classes := [value for value in values if coding.table[value] != IGNORE]) == list(range(len(classes))):
        ignored = "".join(f", {value} (ignored)" for value in values if value not in classes)
        return f"0 to {len(classes) - 1}{ignored}"
    return ", ".join(f"{value} ({_meaning(coding, value)})" for value in values)


def _meaning(coding: Coding, value: int) -> str:
    label = coding.table[value]
    return "ignored" if label == IGNORE else coding.names[label]
