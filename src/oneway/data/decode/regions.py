"""What is annotated on an image: regions of classes, painted one over the other into a label map.

A region has its class by name: annotations of several files make one data set, whose classes are known last. What is
said of an outline is looked at when it is painted.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.dataset import Bytes
from oneway.data.decode.images import image_size
from oneway.data.decode.outlines import Mask
from oneway.data.decode.plausible import MOST_PIXELS

BACKGROUND = "background"

UNDRAWN = frozenset({BACKGROUND, "_background_", "bg", "void", "unlabelled", "unlabeled", "ignore", "ignored"})
"""What a class is called that nobody draws, in lower case."""

MOST_PAINTED = 2**35
"""Pixels of all regions of an image together, each counted as large as the image: a minute or two."""


Shape = Callable[[tuple[int, int]], Mask]
"""Which pixels of an image of H×W belong to a region; a ValueError, TypeError or OverflowError says what is wrong."""


@dataclass(frozen=True)
class Region:
    """A region of one class."""

    place: str  # where it stands in its file
    name: str | None  # of its class; None where it is ignored
    shape: Shape


@dataclass(frozen=True)
class Regions:
    """All of an image."""

    file: Path  # in which they stand
    regions: tuple[Region, ...]  # in the order in which they are painted
    size: tuple[int, int] | None = None  # height and width as the file says; None where it does not


def paint_over(image: Path, found: Regions, classes: Sequence[str], any_size: bool) -> Bytes:
    """The label map of an image; where annotations claim another size, it has that.

    Nothing is painted then, unless `any_size` asks for it, and the size can be that of an image.
    """
    size = image_size(image)
    claimed = size if found.size is None else found.size
    plausible = 0 < claimed[0] * claimed[1] <= MOST_PIXELS and min(claimed) > 0
    if claimed == size or (any_size and plausible):
        return paint(found, classes, claimed)
    return np.broadcast_to(np.uint8(IGNORE), claimed)


def paint(found: Regions, classes: Sequence[str], size: tuple[int, int]) -> Bytes:
    """H×W class indices, or IGNORE, of an image of this size; where no region is, that of `undrawn_class`.

    Raises:
        UserError: Names the file, and the place in it.
    """
    if (painted := len(found.regions) * size[0] * size[1]) > MOST_PAINTED:
        raise UserError(
            f"{found.file}: {len(found.regions)} regions on {size[1]}×{size[0]} pixels would take too long to paint "
            f"({painted:.1e} pixels, at most {MOST_PAINTED:.1e}). Divide the image, or export masks."
        )
    index = {name: label for label, name in enumerate(classes)}
    undrawn = undrawn_class(classes)
    labels = np.full(size, undrawn, dtype=np.uint8)
    for region in found.regions:
        name = region.name
        label: int | None = IGNORE
        if name is not None:
            known = spelled(name, classes)
            label = index[known] if known is not None else undrawn if is_background(name) else None
        if label is None:
            raise UserError(f"{found.file}: {region.place}: {region.name!r:.80} is none of the classes.")
        try:
            labels[region.shape(size)] = label
        except (ValueError, TypeError, OverflowError) as error:
            raise UserError(f"{found.file}: {region.place}: {error}.") from None
    return labels


def spelled(name: str, classes: Sequence[str]) -> str | None:
    """The class of this name, or else the only one that has it in upper or lower case; None where there is none."""
    if name in classes:
        return name
    alike = [known for known in classes if known.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


def undrawn_class(classes: Sequence[str]) -> int:
    """The class of pixels that no region covers: the background, or else one that nobody draws; IGNORE without one."""
    undrawn = [index for index, name in enumerate(classes) if name.casefold() in UNDRAWN]
    return next((index for index in undrawn if is_background(classes[index])), next(iter(undrawn), IGNORE))


def is_background(name: str) -> bool:
    """Whether a class of this name is the background, which is there anyhow unless a list of classes lacks it."""
    return name.lower() in (BACKGROUND, f"_{BACKGROUND}_")
