"""Models, by name. A model maps inputs (images in RGB, [0, 1]) to logits: N×C×h×w, or N×C for a whole image."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from oneway.config import Model
from oneway.models.encoder import load_encoder
from oneway.models.mlp import Perceptron
from oneway.models.swiftnet import SwiftNet
from oneway.models.wrn import WideResNet

__all__ = ["MODELS", "SwiftNet", "build", "pretrained_parameters"]

MODELS: dict[str, Callable[[Model, int], nn.Module]] = {
    "swiftnet": lambda config, classes: SwiftNet(classes, config.backbone, config.width),
    "wrn-28-2": lambda config, classes: WideResNet(classes, depth=28, width=2),
    "mlp": lambda config, classes: Perceptron(classes),
}


def build(config: Model, classes: int, seed: int) -> nn.Module:
    """The configured network with its initial weights, a function of the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MODELS[config.name](config, classes)
    if isinstance(model, SwiftNet) and config.weights is not None:
        load_encoder(model.encoder, config.backbone, config.weights)
    return model


def pretrained_parameters(model: nn.Module, config: Model) -> list[nn.Parameter]:
    """The parameters that `model.weights` filled."""
    return list(model.encoder.parameters()) if isinstance(model, SwiftNet) and config.weights is not None else []
