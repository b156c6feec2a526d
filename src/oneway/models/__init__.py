"""Models, by name. A model maps inputs (images in RGB, [0, 1]) to logits: N×C×h×w, or N×C for a whole image."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from oneway.config import Model
from oneway.data.dataset import Task
from oneway.models.deeplab import DeepLabV2, DeepLabV3Plus
from oneway.models.factory import call_factory, examine
from oneway.models.image import ImageModel
from oneway.models.mlp import Perceptron
from oneway.models.swiftnet import SwiftNet
from oneway.models.weights import load_weights
from oneway.models.wrn import WideResNet

__all__ = ["MODELS", "ImageModel", "Prepared", "SwiftNet", "build", "prepare"]

MODELS: dict[str, Callable[[Model, int], nn.Module]] = {
    "swiftnet": lambda config, classes: SwiftNet(classes, config.backbone or "resnet18", config.width),
    "deeplabv2": lambda config, classes: DeepLabV2(classes, config.backbone or "resnet101", config.width),
    "deeplabv3plus": lambda config, classes: DeepLabV3Plus(classes, config.backbone or "resnet50", config.width),
    "wrn-28-2": lambda config, classes: WideResNet(classes, depth=28, width=2),
    "mlp": lambda config, classes: Perceptron(classes),
}


class Prepared(NamedTuple):
    """A network that is ready to train."""

    network: nn.Module
    pretrained: list[nn.Parameter]
    """What `model.weights` filled."""

    remarks: list[str]
    """What the user should know about it."""


def build(config: Model, classes: int, seed: int) -> nn.Module:
    """The configured network with random weights, a function of the seed. Runs `model.factory`, if there is one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if config.factory is not None:
            return call_factory(config.factory, classes)
        return MODELS[config.name](config, classes)


def prepare(config: Model, classes: int, seed: int, task: Task, crop: tuple[int, int] | None) -> Prepared:
    """The configured network with its initial weights; one that is not ours is examined first."""
    network, remarks = build(config, classes, seed), []
    if config.factory is not None and crop is not None:
        remarks = examine(network, config.factory, classes, task, crop)
    loaded = load_weights(network, config)
    return Prepared(network, loaded.parameters, [*remarks, *loaded.remarks])
