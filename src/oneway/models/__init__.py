"""Models, by name. A model maps inputs (images in RGB, [0, 1]) to logits: N×C×h×w, or N×C for a whole image."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from oneway.config import Model
from oneway.data.dataset import Task
from oneway.models.factory import call_factory, examine
from oneway.models.image import ImageModel

__all__ = ["MODELS", "ImageModel", "Prepared", "build", "prepare"]

# A network is imported when it is asked for: timm takes as long as PyTorch itself, and two moons do not need it.


def _swiftnet(config: Model, classes: int) -> nn.Module:
    from oneway.models.swiftnet import SwiftNet

    return SwiftNet(classes, config.backbone or "resnet18", config.width)


def _deeplab_v2(config: Model, classes: int) -> nn.Module:
    from oneway.models.deeplab import DeepLabV2

    return DeepLabV2(classes, config.backbone or "resnet101", config.width)


def _deeplab_v3_plus(config: Model, classes: int) -> nn.Module:
    from oneway.models.deeplab import DeepLabV3Plus

    return DeepLabV3Plus(classes, config.backbone or "resnet50", config.width)


def _wrn_28_2(config: Model, classes: int) -> nn.Module:
    from oneway.models.wrn import WideResNet

    return WideResNet(classes, depth=28, width=2)


def _perceptron(config: Model, classes: int) -> nn.Module:
    from oneway.models.mlp import Perceptron

    return Perceptron(classes)


MODELS: dict[str, Callable[[Model, int], nn.Module]] = {
    "swiftnet": _swiftnet,
    "deeplabv2": _deeplab_v2,
    "deeplabv3plus": _deeplab_v3_plus,
    "wrn-28-2": _wrn_28_2,
    "mlp": _perceptron,
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
    if config.weights is None:
        return Prepared(network, [], remarks)
    from oneway.models.weights import load_weights

    loaded = load_weights(network, config.weights)
    return Prepared(network, loaded.parameters, [*remarks, *loaded.remarks])
