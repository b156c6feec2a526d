"""The data next to the model: every pixel of every image in one long row, and where each image begins.

Images of different sizes need nothing special, and a batch is never gathered: crops are sampled from the row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oneway.data.dataset import Samples
from oneway.data.rows import OnDisk, Row

AT_ONCE = 2**24
"""Pixels on their way from the disk to the device."""


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
            _held(samples.pixels, device),
            _held(samples.labels, device),
            torch.from_numpy(samples.starts).to(device),
            torch.from_numpy(samples.sizes).to(device),
            samples.dense,
        )


def _held(row: Row, device: torch.device) -> Tensor:
    if not isinstance(row, OnDisk):
        return torch.from_numpy(row[:]).to(device)
    held = torch.empty(row.shape, dtype=torch.uint8, device=device)
    for start in range(0, len(row), AT_ONCE):
        held[start : start + AT_ONCE] = torch.from_numpy(row[start : start + AT_ONCE])
    return held
