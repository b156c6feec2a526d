"""Crops that fit the images at hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from oneway.common.terms import COARSEST_STRIDE
from oneway.config import Config

LEAST = 2 * COARSEST_STRIDE
"""Pixels on a side, so that the coarsest features have a neighbour."""


def fit_crops(config: Config, sizes: npt.NDArray[np.int64]) -> tuple[Config, str]:
    """The settings with crops that most labelled images fill (`jitter.fit`), and what to say of it, if anything.

    The random scale is as often below 1 as above: what an image fills by itself, it fills in half of its crops.

    Args:
        config: Every setting; what is decided here is decided afterwards.
        sizes: N×2, height and width of the labelled images, as they are read.
    """
    if not config.jitter.fit or config.jitter.crop is None:
        return config, ""
    asked = config.jitter.crop
    height, width = fitted = fit(asked, sizes)
    config = config.changed(jitter={"crop": fitted, "fit": False})
    if fitted == asked:
        return config, ""
    return config, (
        f"Crops have {width}×{height} pixels, not {asked[1]}×{asked[0]}, which most labelled images would not fill. "
        f"`--jitter.crop {asked[0]} {asked[1]}` takes them all the same."
    )


def fit(crop: tuple[int, int], sizes: npt.NDArray[np.int64] | Sequence[tuple[int, int]]) -> tuple[int, int]:
    """A crop of which each side is the largest multiple of `COARSEST_STRIDE` that most images have, if that is less."""
    if not len(sizes):
        return crop
    middle = np.sort(sizes, axis=0)[len(sizes) // 2]  # half of them, or more, are no smaller
    multiples = (int(length) // COARSEST_STRIDE * COARSEST_STRIDE for length in middle)
    height, width = (min(side, max(LEAST, length)) for side, length in zip(crop, multiples, strict=True))
    return height, width
