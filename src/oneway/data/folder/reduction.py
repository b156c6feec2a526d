"""How much smaller large photographs are read: so far that objects come into view, and nothing drawn is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from oneway.common.errors import UserError
from oneway.common.streams import stream
from oneway.common.terms import IGNORE
from oneway.data.check.survey import thinned
from oneway.data.dataset import SHORT_SIDE, Bytes, Item, Listing
from oneway.data.decode.images import image_size

KEPT = 0.85
"""IoU of each class with itself, made smaller and larger again: thin and small things are not given up."""

LOOKED_AT, LOOKED_AT_FOR_RARE = 16, 256
"""Masks that are read: so many, and more of them while there are classes that none has shown."""

COMPARED = 2**18  # pixels of a mask

Reduction = int | Literal["auto"]


class Choice(NamedTuple):
    """The largest factor that `KEPT` allows, and what the next one would have cost."""

    factor: int
    loser: str = ""  # the class that loses most by it
    kept: float = 1.0  # of its IoU


def with_reduction(listing: Listing, asked: Reduction) -> Listing:
    """A listing whose images are read at most so many times smaller, as long as `SHORT_SIDE` remains; says so.

    `auto` asks for the largest number that keeps what is drawn in the masks.
    """
    sizes = [size for item in _spread(listing.items, LOOKED_AT_FOR_RARE) if (size := _size(item))]
    most = max((min(size) for size in sizes), default=0) // SHORT_SIDE
    choice = Choice(asked) if asked != "auto" else choose(listing, most) if most > 1 else Choice(1)
    found = replace(listing, reduction=choice.factor, least_side=SHORT_SIDE)
    return replace(found, remarks=(*listing.remarks, *_about(found, choice, sizes, asked)))


def choose(listing: Listing, most: int) -> Choice:
    """The largest factor up to `most` with which every class keeps enough of its IoU."""
    masks: list[Bytes] = []
    missing = set(range(len(listing.classes)))
    labelled = [item for item in listing.items if item.mask]
    first = _spread(labelled, LOOKED_AT)
    for item in dict.fromkeys((*first, *_spread(labelled, LOOKED_AT_FOR_RARE))):
        if len(masks) >= len(first) and not missing:
            break
        try:
            masks.append(listing.read_labels(item))
        except UserError:
            continue  # said when the data are checked
        missing -= set(np.flatnonzero(np.bincount(masks[-1].reshape(-1), minlength=IGNORE + 1)).tolist())
    loser, kept = "", 1.0
    for factor in range(most, 1, -1):
        of_classes = _kept(masks, factor, len(listing.classes))
        worst = int(np.nanargmin(of_classes)) if masks and not np.isnan(of_classes).all() else None
        if worst is None:
            return Choice(1)
        if of_classes[worst] >= KEPT:
            return Choice(factor, loser, kept)
        loser, kept = listing.classes[worst], float(of_classes[worst])
    return Choice(1, loser, kept)


def _about(listing: Listing, choice: Choice, sizes: Sequence[tuple[int, int]], asked: Reduction) -> Iterator[str]:
    """What is said of images that could be read smaller than they are."""
    larger = [size for size in sizes if min(size) >= 2 * SHORT_SIDE]
    if sizes and not larger and asked not in ("auto", 1):
        height, width = max(sizes)
        yield (
            f"No image is read smaller, though --data.reduction says {asked}: each keeps {SHORT_SIDE} pixels on its "
            f"shorter side, and the largest has {width}×{height}."
        )
    if not larger:
        return
    height, width = max(larger)
    factor = listing.factor((height, width))
    read = f"of {width}×{height} pixels are read at 1/{factor} of their height and width" if factor > 1 else ""
    if asked != "auto":
        if factor > 1:
            yield f"Images {read}, as --data.reduction says; predictions have their full size."
    elif factor > 1:
        rest = ", smaller ones less" if len(larger) < len(sizes) else ""
        yield (
            f"Large images {read}{rest}; predictions have their full size. `--data.reduction 1` reads all as they are."
        )
    else:
        yield (
            f"Images of {width}×{height} pixels are read as they are: at 1/2, `{choice.loser}` would keep "
            f"{100 * choice.kept:.0f} % of its IoU. Crops show little of them; `--data.reduction 2` makes them smaller."
        )


def _kept(masks: Sequence[Bytes], factor: int, classes: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """IoU of each class of masks with what is left of it; not a number for those that do not occur."""
    confusion = np.zeros((classes, classes), dtype=np.int64)
    for mask in masks:
        few = max(1, COMPARED // mask.shape[1])  # by lot: rows at equal distances may all hit the same lines
        rows = np.sort(stream(0, "rows of masks").permutation(len(mask))[:few])
        before = mask[rows]
        after = thinned(mask, factor)[rows[:, None] // factor, np.arange(mask.shape[1]) // factor]
        both = (before != IGNORE) & (after != IGNORE)
        pairs = before[both].astype(np.int64) * classes + after[both]
        confusion += np.bincount(pairs, minlength=classes**2).reshape(classes, classes)
    hit, drawn = confusion.diagonal(), confusion.sum(axis=1)
    union = confusion.sum(axis=0) + drawn - hit
    return np.where(drawn > 0, hit / np.maximum(union, 1), np.nan)


def _spread(items: Sequence[Item], count: int) -> Sequence[Item]:
    return items[:: -(-len(items) // count) or 1]


def _size(item: Item) -> tuple[int, int] | None:
    try:
        return image_size(item.image)
    except UserError:
        return None  # said when the data are checked
