"""What every reader returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oneway.methods import SplitName

IGNORE = 255
"""The label of a pixel that belongs to no class: it neither trains nor counts."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Images:
    """N images of one size with their labels, as decoded."""

    names: tuple[str, ...]
    pixels: Bytes  # N×H×W×3, RGB
    labels: Bytes  # N×H×W, class indices or IGNORE

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Dataset:
    """What the labels mean, and how to read the images of a split; nothing is read before it is asked for."""

    classes: tuple[str, ...]
    colours: tuple[tuple[int, int, int], ...]
    read: Callable[[SplitName], Images]
