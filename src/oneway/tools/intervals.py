"""What single validation images say: the score of each, and how far that of all would move with other images.

The intervals are by the bootstrap.

From the images that validate, as many are drawn with replacement, and scored, two thousand times over. 95 % of those
scores lie within the interval. It takes images for independent of one another: frames of one video, which are alike,
have intervals that are too narrow, unless it is known which belong together: then groups are drawn, and not images.
What another seed of the training would change is not in it.

Shapes: N images, C classes, B draws.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
"""N×3×C: of each image and class the pixels that are right, those that have the label, and those predicted so."""

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]
"""In percent, or in points."""

FEWEST = 10
"""Images, or groups of them: fewer say too little about how images differ."""

SELDOM = 4
"""Images, or groups of them: where fewer show a class, one draw in forty or more has none of it, and scores the other
classes alone."""

DRAWS = 2000
TAILS = (2.5, 97.5)
AT_ONCE = 2**24
"""Numbers that a part of the draws takes."""


def together(counts: Counts, groups: Sequence[str]) -> Counts:
    """The counts of each group of images, in place of each image; where there are no groups, as they are."""
    if not groups:
        return counts
    _, places = np.unique(groups, return_inverse=True)
    sums = np.zeros((places.max() + 1, *counts.shape[1:]), dtype=np.int64)
    np.add.at(sums, places, counts)
    return sums


def interval_of(counts: Counts) -> Interval | None:
    """The interval of mIoU; None where too few images validate, or show the classes that it is a mean of."""
    return None if _too_few(counts) else _interval(_mean(_scores(counts)))


def interval_of_gain(before: Counts, after: Counts) -> Interval | None:
    """That of the difference between two models on the same images, each draw of which both are scored on."""
    if _too_few(before):
        return None
    return _interval(_mean(_scores(after)) - _mean(_scores(before)))


def intervals_of_classes(counts: Counts) -> list[Interval | None]:
    """That of the IoU of each class; None for one that too few images have."""
    if len(counts) < FEWEST:
        return [None] * counts.shape[2]
    occurs = (counts[:, 1] > 0).sum(axis=0)
    scores = _scores(counts).T
    return [_interval(score) if images >= FEWEST else None for score, images in zip(scores, occurs, strict=True)]


def seldom_shown(counts: Counts) -> dict[int, int]:
    """How many images show each of the classes that few do, if these are half of all that occur or more; else none."""
    images = (counts[:, 1] > 0).sum(axis=0).tolist()
    seldom = {label: count for label, count in enumerate(images) if 0 < count < SELDOM}
    return seldom if 2 * len(seldom) >= np.count_nonzero(images) else {}


def in_brackets(interval: Sequence[float] | None) -> str:
    """To stand behind a value in percent; nothing where none is known."""
    return f" (95\N{NO-BREAK SPACE}% interval {interval[0]:.1f} to {interval[1]:.1f})" if interval else ""


def miou_of_images(counts: Counts) -> Floats:
    """N: mIoU of each image by itself, over the classes it has; not a number where it has no label."""
    return _mean(_iou(counts.astype(np.float64)))


def _too_few(counts: Counts) -> bool:
    """Whether too few images validate, or half of their mean or more is of classes that hardly any of them shows."""
    return len(counts) < FEWEST or bool(seldom_shown(counts))


def _scores(counts: Counts) -> Floats:
    """B×C: IoU in percent, for each draw; not a number where it has no pixel of a class."""
    images, _, classes = counts.shape
    random, flat = np.random.default_rng(0), counts.reshape(images, -1).astype(np.float64)
    part = max(1, AT_ONCE // images)
    sums = []
    for first in range(0, DRAWS, part):
        times = random.multinomial(images, np.full(images, 1 / images), size=min(part, DRAWS - first))
        sums.append(times @ flat)
    return _iou(np.concatenate(sums).reshape(DRAWS, 3, classes))


def _iou(counts: Floats) -> Floats:
    """…×C of …×3×C, in percent; not a number where a class does not occur."""
    hits, labelled, predicted = np.moveaxis(counts, -2, 0)
    union = labelled + predicted - hits
    return 100 * np.divide(hits, union, out=np.full_like(hits, np.nan), where=labelled > 0)


def _mean(scores: Floats) -> Floats:
    with warnings.catch_warnings():  # where there is no label at all
        warnings.simplefilter("ignore", RuntimeWarning)
        mean: Floats = np.nanmean(scores, axis=-1)
    return mean


def _interval(scores: Floats) -> Interval:
    low, high = np.nanpercentile(scores, TAILS)
    return float(low), float(high)
