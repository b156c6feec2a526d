"""The projector of a contrastive method: trained with the network, not saved with the model.

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
    """φ of CAC, for the features before the classifier; its random weights are a function of the run's seed."""
    channels = classifier_of(network).in_channels
    with seed_cpu(int(stream(seed, "projector").integers(2**32))):
        return nn.Sequential(nn.Conv2d(channels, channels, 1), nn.ReLU(), nn.Conv2d(channels, PROJECTED, 1))
