"""Decodes listed items, and keeps a survey of each: enough to check a data set without decoding it again.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from math import ceil
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from oneway.common.errors import UserError
from oneway.common.threads import in_threads
from oneway.data.dataset import Bytes, Item, Listing
from oneway.data.decode.header import read_header
from oneway.data.decode.images import STRIPE, read_image, reduced
from oneway.data.decode.plausible import PLAUSIBLE_PIXELS, Unreadable

GRID = 16
"""Rows and columns of a fingerprint: few enough for neighbouring frames to agree, enough for other places to differ."""

ALIKE_SHAPES = 0.02  # up to this share, the shapes of a mask and an image differ by rounding alone
UPRIGHT = 1  # the EXIF orientation of an image that is stored as it is seen

Fault = Literal["image", "mask", "labels", "size"]
"""What is wrong: the image or the mask cannot be decoded; the labels have no meaning; or the two sizes differ."""


Count = Annotated[int, Field(ge=0)]
Byte = Annotated[int, Field(ge=0, le=255)]


class Survey(BaseModel):
    """What is kept of a decoded item: sizes, counts, and a digest and a fingerprint to compare it with others."""

    model_config = ConfigDict(frozen=True, ser_json_bytes="hex", val_json_bytes="hex")

    name: str
    size: tuple[Count, Count] = (0, 0)  # height and width; zero where the image cannot be read: nothing else is known
    labels: dict[Byte, Count] | None = None  # pixels of each label that occurs, IGNORE among them; None without a mask
    fingerprint: bytes = b""  # see `fingerprint`
    digest: str = ""  # a hash of the pixels: two images have the same one only if they agree in every pixel
    orientation: Annotated[int, Field(ge=1, le=8)] = UPRIGHT  # of EXIF, undone by decoding, where there is a mask
    brightest: Byte | None = None  # the largest value of an image of which only the upper 8 bits remain; None elsewhere
    pages: Count = 1  # how many pictures are in its file
    further_band: bool = False  # whether it has a band that is no colour, and is not used
    problem: str | None = None  # why it cannot be used; None if it can
    part: Fault | None = None  # what the problem is with


def survey(item: Item, whole: Bytes, image: Bytes, labels: Bytes | None) -> Survey:
    """What is kept of an item that has been decoded: its image at full size, and it and its labels as they are kept."""
    height, width = image.shape[:2]
    header = read_header(item.image)
    counts = None if labels is None else _count(labels)
    return Survey(
        name=item.name,
        size=(height, width),
        labels=None if counts is None else {int(label): int(counts[label]) for label in counts.nonzero()[0]},
        fingerprint=fingerprint(image),
        digest=pixel_digest(image),
        orientation=UPRIGHT if labels is None else header.orientation,
        brightest=int(whole.max()) if header.deep else None,
        pages=header.pages,
        further_band=header.further_band,
    )


def pixel_digest(image: Bytes) -> str:
    """The same only for images that agree in every pixel."""
    size = f"{image.shape[0]}×{image.shape[1]}".encode()
    return blake2b(np.ascontiguousarray(image).data, digest_size=16, key=size).hexdigest()


def _count(labels: Bytes) -> npt.NDArray[np.int64]:
    """How many pixels have each label; a million at a time, for which NumPy takes eight times their memory."""
    parts = np.array_split(labels.reshape(-1), ceil(labels.size / 2**20))
    return np.sum([np.bincount(part, minlength=256) for part in parts], axis=0)


def fingerprint(image: Bytes) -> bytes:
    """An H×W×3 image in GRID×GRID grey cells, row after row: alike for images that look alike."""
    size, box = (GRID, GRID), Image.Resampling.BOX
    if image.shape[0] * image.shape[1] > PLAUSIBLE_PIXELS:  # of which Pillow would take a large copy
        rows = max(1, STRIPE // image.shape[1])
        parts = [image[top : top + rows] for top in range(0, len(image), rows)]
        image = np.concatenate([np.asarray(Image.fromarray(part).resize((GRID, len(part)), box)) for part in parts])
    return Image.fromarray(image).resize(size, box).convert("L").tobytes()


def decode_and_survey(listing: Listing, item: Item) -> tuple[Survey, Bytes | None, Bytes | None]:
    """Survey, H×W×3 pixels and H×W labels of an item; where it cannot be used, the survey says why.

    With a mask that cannot be used, an image can still be compared with others, and shown.
    """
    try:
        whole = read_image(item.image, style=listing.image_style)
    except UserError as error:
        return Survey(name=item.name, problem=str(error), part="image"), None, None
    factor = listing.factor((whole.shape[0], whole.shape[1]))
    image = reduced(whole, factor)
    if not item.labelled:
        return survey(item, whole, image, None), image, None
    try:
        labels = listing.read_labels(item)
        fault = {"part": "size", "problem": _mismatch(item, item.mask or item.image, whole, labels)}
    except UserError as error:
        fault = {"part": "mask" if isinstance(error, Unreadable) else "labels", "problem": str(error)}
    if fault["problem"]:
        return survey(item, whole, image, None).model_copy(update=fault), image, None
    labels = thinned(labels, factor)
    return survey(item, whole, image, labels), image, labels


def survey_all(listing: Listing, items: Iterable[Item], advance: Callable[[], None]) -> dict[str, Survey]:
    """The survey of each item, by its name; `advance` is called after each."""
    surveys = {}
    for found in in_threads(lambda item: decode_and_survey(listing, item)[0], items):
        surveys[found.name] = found
        advance()
    return surveys


def thinned(labels: Bytes, factor: int) -> Bytes:
    """H×W labels at 1/factor of their size: of each square, as pixels are averaged over it, that of its middle."""
    rows, columns = (
        (np.arange(-(-length // factor)) * factor + (factor - 1) // 2).clip(max=length - 1) for length in labels.shape
    )
    return labels[rows[:, None], columns] if factor > 1 else labels


def _mismatch(item: Item, mask: Path, image: Bytes, labels: Bytes) -> str:
    """Why labels do not fit an image, which is given at its own size; nothing where they do."""
    (height, width), (rows, columns) = image.shape[:2], labels.shape
    if (rows, columns) == (height, width):
        return ""
    if (rows, columns) != (width, height):
        way_out = "Give each image the mask that was drawn on it, at its size."
        if abs(rows * width / (columns * height) - 1) < ALIKE_SHAPES:
            way_out += " If it was made smaller or larger, `resize_masks: nearest` in dataset.yaml undoes that."
    elif (turned := read_header(item.image).orientation) == UPRIGHT:
        way_out = "One of the two is turned by 90°: turn it back."
    else:
        way_out = (
            f"The image has EXIF orientation {turned}, and the mask is not turned that way: "
            "set it to 1 in the image, or turn the mask."
        )
    return f"{mask}: {columns}×{rows} labels for the {width}×{height} pixels of {item.image}. {way_out}"
