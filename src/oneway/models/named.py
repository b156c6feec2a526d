"""Networks by name. A network maps inputs (images in RGB, [0, 1]) to logits: N×C×h×w, or N×C for a whole image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from oneway.common.importing import collector_paused, import_timm
from oneway.models.factory import call_factory
from oneway.models.seed import seed_cpu

if TYPE_CHECKING:
    from oneway.config import Model

BACKBONES = {
    "swiftnet": "resnet18",
    "deeplabv2": "resnet101",
    "deeplabv3plus": "resnet50",
    "vit": "vit_small_patch14_dinov2",
}
"""The networks with an encoder by timm's name, and their default encoders."""


def build(config: Model, classes: int, seed: int) -> nn.Module:
    """Build the configured network with random weights, a function of the seed; calls `model.factory`, if given."""
    with seed_cpu(seed):
        if config.factory is not None:
            return call_factory(config.factory, classes)
        with collector_paused():
            return _named(config, classes)


def _named(config: Model, classes: int) -> nn.Module:
    """Build a network of this package. Imports are local: timm takes as long as PyTorch, and toys do not need it."""
    backbone = config.backbone or BACKBONES.get(config.name, "")
    match config.name:
        case "swiftnet":
            from oneway.models.swiftnet import SwiftNet

            return SwiftNet(classes, backbone, config.width)
        case "deeplabv2":
            from oneway.models.deeplab import DeepLabV2

            return DeepLabV2(classes, backbone, config.width)
        case "deeplabv3plus":
            from oneway.models.deeplab import DeepLabV3Plus

            return DeepLabV3Plus(classes, backbone, config.width)
        case "vit":
            import_timm()
            from oneway.models.vit import ViT

            return ViT(classes, backbone)
        case "wrn-28-2":
            import_timm()
            from oneway.models.wrn import WideResNet

            return WideResNet(classes, depth=28, width=2)
        case "mlp":
            from oneway.models.mlp import Perceptron

            return Perceptron(classes)
