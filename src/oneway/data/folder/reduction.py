"""How much smaller large photographs are read: so far that objects come into view, and nothing drawn is lost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from oneway.common.errors import UserError
from oneway.common.streams import stream
from oneway.common.terms import IGNORE
from oneway.data.check.survey import thinned
from oneway.data.dataset import Bytes, Listing
from oneway.data.decode.images import image_size

SHORT_SIDE = 512
"""Pixels that the shorter side of most images keeps: crops of a few hundred show objects with what surrounds them."""

KEPT = 0.85
"""IoU of each class with itself, made smaller and larger again: thin and small things are not given up."""

LOOKED_AT = 16
COMPARED = 2**18  # pixels of a mask


def choose_reduction(listing: Listing) -> int:
    """The largest number of pixels to average, each way, that `SHORT_SIDE` and `KEPT` allow; 1 for most folders."""
    labelled = [item for item in (*listing.train, *listing.val) if item.mask]
    chosen = labelled[:: max(1, len(labelled) // LOOKED_AT)]
    sides, masks = [], []
    for item in chosen:
        try:
            sides.append(min(image_size(item.image)))
        except UserError:
            continue  # said when the data are checked
    most = int(statistics.median(sides)) // SHORT_SIDE if sides else 1
    if most < 2:
        return 1
    for item in chosen:
        try:
            masks.append(listing.read_labels(item))
        except UserError:
            continue
    return next((n for n in range(most, 1, -1) if _kept(masks, n, len(listing.classes)) >= KEPT), 1)


def about_reduction(listing: Listing) -> Iterator[str]:
    """What is said of images that are read smaller than they are."""
    if listing.reduction > 1:
        yield (
            f"Images are large: they are read at 1/{listing.reduction} of their height and width, and predictions have "
            "their full size. `--data.reduction 1` reads them as they are, for objects of few pixels."
        )


def _kept(masks: Sequence[Bytes], factor: int, classes: int) -> float:
    """IoU of masks with what is left of them, of the class that loses most."""
    confusion = np.zeros((classes, classes), dtype=np.int64)
    for mask in masks:
        few = max(1, COMPARED // mask.shape[1])  # by lot: rows at equal distances may all hit the same lines
        rows = np.sort(stream(0, "rows of masks").permutation(len(mask))[:few])
        before = mask[rows]
        after = thinned(mask, factor)[rows[:, None] // factor, np.arange(mask.shape[1]) // factor]
        both = (before != IGNORE) & (after != IGNORE)
        pairs = before[both].astype(np.int64) * classes + after[both]
        confusion += np.bincount(pairs, minlength=classes**2).reshape(classes, classes)
    hit = confusion.diagonal()
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - hit
    occurs = confusion.sum(axis=1) > 0
    return float((hit[occurs] / union[occurs]).min()) if occurs.any() else 0.0
