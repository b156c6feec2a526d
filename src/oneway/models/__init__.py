"""Models, by configuration."""

from __future__ import annotations

import torch

from oneway.config import Model
from oneway.models.encoder import load_encoder
from oneway.models.swiftnet import SwiftNet

__all__ = ["SwiftNet", "build"]


def build(config: Model, classes: int, seed: int) -> SwiftNet:
    """The configured network with its initial weights, a function of the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SwiftNet(classes, config.backbone, config.width)
    if config.weights is not None:
        load_encoder(model.encoder, config.backbone, config.weights)
    return model
