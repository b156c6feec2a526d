"""Which few of many validation images are shown and measured: with rare classes among them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from oneway.common.terms import IGNORE
from oneway.data import Samples
from oneway.tools.evaluate import evenly_spaced

LOOKED_AT = 2**28
"""Pixels of labels, which takes half a second."""


def choose_scenes(images: Samples, count: int) -> list[int]:
    """Evenly spaced labelled images; where these lack a class, of each equal part the one that shows the rarest."""
    plain = evenly_spaced(images.labelled, count)
    if not plain:
        return plain
    most = LOOKED_AT // max(1, int(images.sizes[: images.labelled].prod(axis=1).mean()))
    looked_at = sorted({*plain, *evenly_spaced(images.labelled, most)})
    shown = {index: np.flatnonzero(pixels_of_classes(images, index)).tolist() for index in looked_at}
    found = Counter(label for classes in shown.values() for label in classes)
    if found.keys() == {label for index in plain for label in shown[index]}:
        return plain
    rarity = {index: sum(1 / found[label] for label in classes) for index, classes in shown.items()}
    return [max(part.tolist(), key=rarity.__getitem__) for part in np.array_split(looked_at, len(plain))]


def pixels_of_classes(images: Samples, index: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How many pixels of an image have each class."""
    return np.bincount(images.label_map(index).reshape(-1), minlength=IGNORE + 1)[:IGNORE]
