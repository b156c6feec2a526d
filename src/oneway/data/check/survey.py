"""Decodes listed items, and keeps a survey of each: enough to check a data set without decoding it again.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from oneway.common.errors import UserError
from oneway.data.dataset import Bytes, Item, Listing
from oneway.data.decode.images import Unreadable, read_header, read_image

GRID = 16
"""Rows and columns of a fingerprint: few enough for neighbouring frames to agree, enough for other places to differ."""

UPRIGHT = 1
"""The EXIF orientation of an image that is stored as it is seen."""

Part = Literal["image", "mask", "labels", "size"]
"""What is wrong: the image or the mask cannot be decoded; the labels have no meaning; or the two sizes differ."""


class Unusable(UserError):
    """Why an item cannot be used: because of its image, its mask, or their sizes."""

    def __init__(self, message: str, part: Part) -> None:
        super().__init__(message)
        self.part = part


@dataclass(frozen=True)
class Survey:
    """What is kept of a decoded item: sizes, counts, and a digest and a fingerprint to compare it with others."""

    name: str

    size: tuple[int, int] = (0, 0)
    """Height and width; zero where the image cannot be read, and neither fingerprint nor digest are there then."""

    labels: dict[int, int] | None = None
    """Pixels of each label that occurs, IGNORE among them; None without a mask."""

    fingerprint: bytes = b""
    """See `fingerprint`."""

    digest: str = ""
    """A hash of the pixels: two images have the same one only if they agree in every pixel."""

    orientation: int = UPRIGHT
    """The EXIF orientation that decoding has undone, where there is a mask."""

    brightest: int | None = None
    """The largest value of an image whose samples had more than 8 bits, of which the upper 8 remain; None elsewhere."""

    pages: int = 1
    """How many pictures are in its file."""

    problem: str | None = None
    """Why it cannot be used; None if it can."""

    part: Part | None = None
    """What the problem is with."""


def decode(listing: Listing, item: Item) -> tuple[Bytes, Bytes | None]:
    """H×W×3 pixels and the H×W labels that fit them, None without a mask; an Unusable says what is wrong."""
    image = _read_pixels(item)
    return _reduced(image, listing.reduction), _read_labels(listing, item, image)


def survey(item: Item, image: Bytes, labels: Bytes | None) -> Survey:
    """What is kept of an item that has been decoded."""
    height, width = image.shape[:2]
    header = read_header(item.image)
    return Survey(
        name=item.name,
        size=(height, width),
        labels=None if labels is None else _count(labels),
        fingerprint=fingerprint(image),
        digest=blake2b(np.ascontiguousarray(image).data, digest_size=16, key=f"{height}×{width}".encode()).hexdigest(),
        orientation=UPRIGHT if labels is None else header.orientation,
        brightest=int(image.max()) if header.deep else None,
        pages=header.pages,
    )


def fingerprint(image: Bytes) -> bytes:
    """An H×W×3 image in GRID×GRID grey cells, row after row: alike for images that look alike."""
    return Image.fromarray(image).resize((GRID, GRID), Image.Resampling.BOX).convert("L").tobytes()


def decode_and_survey(listing: Listing, item: Item) -> tuple[Survey, Bytes | None, Bytes | None]:
    """Survey, H×W×3 pixels and H×W labels of an item; where it cannot be used, the survey alone, which says why."""
    whole = None
    try:
        whole = _read_pixels(item)
        labels = _read_labels(listing, item, whole)
    except Unusable as error:
        # With a mask that cannot be used, an image can still be compared with others.
        found = Survey(item.name) if whole is None else survey(item, _reduced(whole, listing.reduction), None)
        return replace(found, problem=str(error), part=error.part), None, None
    image = _reduced(whole, listing.reduction)
    return survey(item, image, labels), image, labels


def survey_all(listing: Listing, items: Iterable[Item], advance: Callable[[], None]) -> dict[str, Survey]:
    """The survey of each item, by its name; `advance` is called after each."""
    surveys = {}
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # Pillow decodes outside the interpreter's lock
        try:
            for result in threads.map(lambda item: decode_and_survey(listing, item)[0], items):
                surveys[result.name] = result
                advance()
        except BaseException:
            threads.shutdown(cancel_futures=True)  # a user who interrupts does not wait for the rest
            raise
    return surveys


def _read_pixels(item: Item) -> Bytes:
    try:
        return read_image(item.image)
    except UserError as error:
        raise Unusable(str(error), "image") from error


def _read_labels(listing: Listing, item: Item, image: Bytes) -> Bytes | None:
    """Labels at the listing's resolution; an Unusable where they do not fit the image, which is given at its own."""
    if item.mask is None:
        return None
    try:
        labels = listing.read_labels(item)
    except UserError as error:
        raise Unusable(str(error), "mask" if isinstance(error, Unreadable) else "labels") from error
    if labels.shape != image.shape[:2]:
        raise Unusable(_mismatch(item, item.mask, image, labels), "size")
    return labels[:: listing.reduction, :: listing.reduction]


def _count(labels: Bytes) -> dict[int, int]:
    counts = np.bincount(labels.reshape(-1), minlength=256)
    return {int(label): int(counts[label]) for label in counts.nonzero()[0]}


def _reduced(image: Bytes, factor: int) -> Bytes:
    return image if factor == 1 else np.asarray(Image.fromarray(image).reduce(factor))


def _mismatch(item: Item, mask: Path, image: Bytes, labels: Bytes) -> str:
    (height, width), (rows, columns) = image.shape[:2], labels.shape
    message = f"{mask}: {columns}×{rows} labels for the {width}×{height} pixels of {item.image}."
    turned = read_header(item.image).orientation
    if (rows, columns) != (width, height):
        return message + " Give each image the mask that was drawn on it, at its size."
    if turned == UPRIGHT:
        return message + " One of the two is turned by 90°: turn it back."
    return (
        message + f" The image has EXIF orientation {turned}, and the mask is not turned that way:"
        " set it to 1 in the image, or turn the mask."
    )
