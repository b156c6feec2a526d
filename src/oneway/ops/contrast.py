"""The directional contrastive loss of CAC (Lai et al., 2021): the less certain crop learns from the more certain one.

Shapes: N images; h×w cells with K features each; M negative cells.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from oneway.ops.cast import at_least_float32
from oneway.ops.collective import gathered
from oneway.ops.losses import mean

TEMPERATURE = 0.1


class Cells(NamedTuple):
    """Features and predictions of the cells of N crops."""

    features: Tensor  # N×K×h×w, of length 1
    certainty: Tensor  # N×h×w, the probability of the most probable class
    label: Tensor  # N×h×w int64, the most probable class

    def shifted(self, down: Tensor, right: Tensor) -> Cells:
        """The cells in other places, without a gradient: see `shifted`."""
        return Cells(*(shifted(each, down, right) for each in self))


def cells_of(logits: Tensor, features: Tensor) -> Cells:
    """Cells from N×C×h×w logits and N×K×h×w features; labels and certainty have no gradient."""
    probabilities = at_least_float32(logits.detach()).softmax(dim=1)
    return Cells(F.normalize(at_least_float32(features)), *probabilities.max(dim=1))


def shifted(values: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Shift N×…×h×w values, without a gradient: at (i, j) the value of (i − down, j − right), 0 outside.

    Args:
        values: Values of the cells of N crops.
        down: N offsets in cells, downwards.
        right: N offsets in cells, to the right.
    """
    height, width = values.shape[-2:]
    row = torch.arange(height, device=down.device) - down[:, None]
    column = torch.arange(width, device=right.device) - right[:, None]
    there = ((row >= 0) & (row < height))[:, :, None] & ((column >= 0) & (column < width))[:, None, :]
    places = (row.clamp(0, height - 1) * width)[:, :, None] + column.clamp(0, width - 1)[:, None, :]
    flat = values.detach().reshape(len(values), -1, height * width)
    moved = flat.gather(2, places.view(len(places), 1, -1).expand(-1, flat.shape[1], -1))
    return torch.where(there.view(len(there), 1, -1), moved, torch.zeros_like(moved)).view(values.shape)


def chosen(both: tuple[Cells, Cells], places: Tensor) -> tuple[Tensor, Tensor]:
    """M×K features and M labels of random cells of both crops, without a gradient.

    The N×(M/N) `places`, in [0, 1), select the cells.
    """
    features = torch.cat([cells.features.detach().flatten(2) for cells in both], dim=2)
    labels = torch.cat([cells.label.flatten(1) for cells in both], dim=1)
    place = (places * labels.shape[1]).long()
    found = features.gather(2, place[:, None].expand(-1, features.shape[1], -1))
    return gathered(found.movedim(1, 2).flatten(0, 1)), gathered(labels.gather(1, place).flatten())


def directional_contrast(
    cells: Cells, other: Cells, counted: Tensor, negatives: tuple[Tensor, Tensor], confidence: float
) -> Tensor:
    """−log of exp(φ·φ'/τ) / (exp(φ·φ'/τ) + Σ exp(φ·φₙ/τ)), a mean over the cells where the other crop is more certain.

    Args:
        cells: The cells that learn.
        other: The same cells in the other crop.
        counted: N×h×w: which cells are in both crops.
        negatives: M×K features and M labels; those with a cell's own label are not negatives of it.
        confidence: The threshold that the other's certainty must exceed.
    """
    with torch.autocast(counted.device.type, enabled=False):
        features = cells.features.movedim(1, -1) / TEMPERATURE  # before there are M times as many numbers
        alike = (features * other.features.movedim(1, -1)).sum(dim=-1)
        unlike = features @ negatives[0].T
    unlike = unlike.masked_fill(cells.label[..., None] == negatives[1], -torch.inf)
    losses = torch.logaddexp(alike, unlike.logsumexp(dim=-1)) - alike
    return mean(losses, counted & (other.certainty > confidence) & (cells.certainty < other.certainty))
