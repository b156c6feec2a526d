"""The data next to the model: every pixel of every image in one long row, and where each image begins.

Images of different sizes need nothing special, and a batch is never gathered: crops are sampled from the row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oneway.data.dataset import Samples


@dataclass(frozen=True)
class Store:
    """Samples on a device."""

    pixels: Tensor  # P×3 uint8, or P×2 float32 points
    labels: Tensor  # of the first samples, uint8: one for each pixel, or one for each sample
    start: Tensor  # N int64, each sample's first pixel
    size: Tensor  # N×2 int64, height and width
    dense: bool
    """Whether it is pixels that have labels."""

    @classmethod
    def hold(cls, samples: Samples, device: torch.device) -> Store:
        """Decoded samples on the device; nothing is copied where they are there already."""
        return cls(
            torch.from_numpy(samples.pixels).to(device),
            torch.from_numpy(samples.labels).to(device),
            torch.from_numpy(samples.starts).to(device),
            torch.from_numpy(samples.sizes).to(device),
            samples.dense,
        )
