"""A test-time average: what a network makes of an image, and of its mirror image."""

from __future__ import annotations

from torch import Tensor, nn

SMALLEST = 1e-30
"""A probability whose logarithm is finite, so that it can be interpolated."""


class Mirrored(nn.Module):
    """A segmentation network whose log-probabilities are of the mean over an image and its mirror image.

    Twice the time. Left and right are alike in photographs, so that two predictions err less than one.
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
