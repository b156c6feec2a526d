"""What every reader returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from oneway.methods import SplitName

IGNORE = 255
"""The label of a pixel that belongs to no class: it neither trains nor counts."""

Task = Literal["segmentation", "classification"]


@dataclass(frozen=True)
class Samples:
    """N inputs with their labels, as decoded."""

    names: tuple[str, ...]
    inputs: npt.NDArray[Any]  # N×H×W×3 uint8 images in RGB, or N×2 float32 points
    labels: npt.NDArray[np.uint8]  # N×H×W (segmentation) or N (classification) class indices, or IGNORE

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Dataset:
    """What the labels mean, and how to read the samples of a split; nothing is read before it is asked for."""

    task: Task
    classes: tuple[str, ...]
    colours: tuple[tuple[int, int, int], ...]
    read: Callable[[SplitName], Samples]
