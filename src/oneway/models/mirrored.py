"""Test-time augmentation: the mean prediction for an image and its mirror image."""

from __future__ import annotations

from torch import Tensor, nn

SMALLEST = 1e-30
"""Least probability: its logarithm is finite, so that it can be interpolated."""


class Mirrored(nn.Module):
    """A segmentation network that returns log-probabilities, averaged over an image and its mirror image.

    It takes twice the time. A mirrored photograph is as plausible as the original, and the mean of two predictions errs
    less than one.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """N×C×h×w for N×3×H×W images."""
        return average(self.network(x), self.network(x.flip(-1)).flip(-1))


def average(logits: Tensor, others: Tensor) -> Tensor:
    """The logarithm of the mean of two probabilities, N×C×h×w."""
    return ((logits.softmax(dim=1) + others.softmax(dim=1)) / 2).clamp_min(SMALLEST).log()
