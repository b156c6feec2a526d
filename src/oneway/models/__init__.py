"""Models, by name. A model maps inputs (images in RGB, [0, 1]) to logits: N×C×h×w, or N×C for a whole image."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from oneway.common.terms import Task
from oneway.config import Model
from oneway.models.factory import call_factory, examine
from oneway.models.image import ImageModel
from oneway.models.seed import seed_cpu

__all__ = ["ImageModel", "Prepared", "build", "prepare"]


class Prepared(NamedTuple):
    """A network that is ready to train."""

    network: nn.Module
    pretrained: list[nn.Parameter]
    """What `model.weights` filled."""

    remarks: list[str]
    """What the user should know about it."""


def build(config: Model, classes: int, seed: int) -> nn.Module:
    """The configured network with random weights, a function of the seed. Runs `model.factory`, if there is one."""
    with seed_cpu(seed):
        if config.factory is not None:
            return call_factory(config.factory, classes)
        return _named(config, classes)


def _named(config: Model, classes: int) -> nn.Module:
    """A network of ours; imported when it is asked for, since timm takes as long as PyTorch and toys do not need it."""
    match config.name:
        case "swiftnet":
            from oneway.models.swiftnet import SwiftNet

            return SwiftNet(classes, config.backbone or "resnet18", config.width)
        case "deeplabv2":
            from oneway.models.deeplab import DeepLabV2

            return DeepLabV2(classes, config.backbone or "resnet101", config.width)
        case "deeplabv3plus":
            from oneway.models.deeplab import DeepLabV3Plus

            return DeepLabV3Plus(classes, config.backbone or "resnet50", config.width)
        case "wrn-28-2":
            from oneway.models.wrn import WideResNet

            return WideResNet(classes, depth=28, width=2)
        case "mlp":
            from oneway.models.mlp import Perceptron

            return Perceptron(classes)


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
