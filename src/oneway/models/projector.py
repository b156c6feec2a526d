"""A projector of features, as contrastive methods train one beside the network and leave it behind.

Shapes: N images; K channels of features at h×w.
"""

from __future__ import annotations

from torch import nn

from oneway.common.streams import stream
from oneway.models.features import classifier_of
from oneway.models.seed import seed_cpu

CELL = 8
"""Sides, in pixels, of the cells whose features are compared."""

PROJECTED = 128
"""Channels of projected features."""


def projector_for(network: nn.Module, seed: int) -> nn.Sequential:
    """φ of CAC, for what the classifier of a network receives; its random weights are a function of the run's seed."""
    channels = classifier_of(network).in_channels
    with seed_cpu(int(stream(seed, "projector").integers(2**32))):
        return nn.Sequential(nn.Conv2d(channels, channels, 1), nn.ReLU(), nn.Conv2d(channels, PROJECTED, 1))
