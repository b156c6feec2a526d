"""Encoders from timm: features at the strides a decoder asks for.

Shapes: N images of H×W pixels; at stride s a feature map has H/s×W/s cells, rounded up or down.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from oneway.common.errors import UserError
from oneway.common.importing import import_timm
from oneway.common.words import first_line, listed
from oneway.models.image import IMAGENET_DEVIATION, IMAGENET_MEAN, Channels
from oneway.models.resnet import DEPTHS, ResNet

STAGES = ("layer1", "layer2", "layer3", "layer4")
STAGE_CHANNELS = (64, 128, 256, 512)
WAY_OUT = "What works, among others: resnet18, mobilenetv4_conv_small, efficientnet_b0, regnety_004, convnext_tiny."
PROBE = (77, 101)
"""Height and width that no stride divides: images come in all sizes."""


class Encoder(nn.Module):
    """A network (`net`), most often of timm's, that maps normalised images to a list of feature maps, finest first."""

    net: Any
    channels: tuple[int, ...]
    """Channels of each feature map."""

    mean: Channels
    deviation: Channels
    """The normalisation of images that the published weights were trained with."""

    def __init__(self, backbone: str, **options: Any) -> None:
        super().__init__()
        self.backbone = backbone
        if backbone in DEPTHS and not options.get("features_only"):
            self.net = ResNet(DEPTHS[backbone], options.get("channels", STAGE_CHANNELS))
            self.mean, self.deviation = IMAGENET_MEAN, IMAGENET_DEVIATION
        else:
            self.net = _create(backbone, **options)
            self.mean, self.deviation = self.net.pretrained_cfg["mean"], self.net.pretrained_cfg["std"]

    def fitted(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Pretrained tensors by the names of `net`, resized where their shape depends on the image size."""
        return tensors


class ResNetEncoder(Encoder):
    """Features at strides 4, 8, 16 and 32, each the residual sum *before* the last ReLU of its stage.

    SwiftNet's decoder normalises and rectifies what it receives, so it wants the sums themselves; the next stage of the
    encoder gets them rectified, as in any ResNet.
    """

    def __init__(self, backbone: str, width: float) -> None:
        super().__init__(backbone, num_classes=0, global_pool="", **_narrowed(width))
        last = [getattr(self.net, stage)[-1] for stage in STAGES]
        norm, activation = ("bn3", "act3") if hasattr(last[0], "conv3") else ("bn2", "act2")
        self.channels = tuple(getattr(block, norm).num_features for block in last)
        self.rectify = type(self.net.act1)()
        for block in last:
            setattr(block, activation, nn.Identity())

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.net.maxpool(self.net.act1(self.net.bn1(self.net.conv1(x))))
        features = []
        for stage in STAGES:
            sums = getattr(self.net, stage)(x)
            features.append(sums)
            x = self.rectify(sums)
        return features


class FeatureEncoder(Encoder):
    """Features at the given strides, the last of them the deepest; below 32 it is reached by dilation."""

    def __init__(self, backbone: str, strides: Sequence[int], width: float = 1.0) -> None:
        dilated = {"output_stride": strides[-1]} if strides[-1] < 32 else {}
        super().__init__(backbone, features_only=True, **dilated, **_narrowed(width))
        found = self.net.feature_info.reduction()
        if not set(strides) <= set(found) or found[-1] != strides[-1]:
            plain = " Plain vision transformers are for --model.name vit." if len(set(found)) == 1 else ""
            raise UserError(
                f"model.backbone {backbone}: has features at the strides {listed(found, most=None)}, and the decoder "
                f"needs {listed(strides, most=None)}.{plain} {WAY_OUT}"
            )
        # Of several feature maps at one stride, the deepest.
        self.chosen = [len(found) - 1 - found[::-1].index(stride) for stride in strides]
        self.channels = tuple(self.net.feature_info.channels()[index] for index in self.chosen)
        self.channels_come_last = getattr(self.net, "output_fmt", None) == "NHWC"
        _refuse_unfit(self, backbone, strides)

    def forward(self, x: Tensor) -> list[Tensor]:
        features = self.net(x)
        chosen = [features[index] for index in self.chosen]
        return [feature.permute(0, 3, 1, 2) for feature in chosen] if self.channels_come_last else chosen


def pyramid_encoder(backbone: str, width: float = 1.0) -> Encoder:
    """An encoder with features at strides 4, 8, 16 and 32; for a ResNet, the residual sums."""
    if backbone in DEPTHS or import_timm().models.is_model_in_modules(backbone, ["resnet"]):
        return ResNetEncoder(backbone, width)
    return FeatureEncoder(backbone, (4, 8, 16, 32), width)


def refuse_unknown(backbone: str) -> None:
    """Raise a UserError with the nearest known names if timm has no model of this name."""
    if backbone not in DEPTHS and not import_timm().is_model(backbone):
        known = import_timm().list_models()
        near = get_close_matches(backbone, known, n=4) or [name for name in known if backbone in name][:4]
        suggestion = f"Did you mean {listed(near, most=None, joint='or')}?" if near else WAY_OUT
        raise UserError(f"model.backbone {backbone}: timm knows no such model. {suggestion}")


def _create(backbone: str, **options: Any) -> Any:
    refuse_unknown(backbone)
    try:
        network = import_timm().create_model(backbone, **options)
    except Exception as error:  # timm's models refuse options in many ways
        lacking = "cannot be dilated" if "output_stride" in options else "timm gives no features of it"
        raise UserError(f"model.backbone {backbone}: {lacking} ({first_line(error)}). {WAY_OUT}") from error
    # Stochastic depth is switched off: its random numbers would not follow from the run's seed.
    for module in network.modules():
        if isinstance(module, import_timm().layers.DropPath):
            module.drop_prob = 0.0
    return network


def _narrowed(width: float) -> dict[str, Any]:
    return {} if width == 1 else {"channels": tuple(round(width * channels) for channels in STAGE_CHANNELS)}


@torch.no_grad()
def _refuse_unfit(encoder: FeatureEncoder, backbone: str, strides: Sequence[int]) -> None:
    """Refuse networks that need a fixed image size, or whose feature maps are not at the usual strides."""
    encoder.eval()
    try:
        shapes = [(feature.shape[1], *feature.shape[2:]) for feature in encoder(torch.zeros(1, 3, *PROBE))]
    except Exception as error:  # size checks and reshapes fail in many ways
        raise UserError(
            f"model.backbone {backbone}: does not take images of {PROBE[0]}×{PROBE[1]} pixels, and here they come in "
            f"all sizes ({first_line(error)}). {WAY_OUT}"
        ) from error
    for stride, channels, shape in zip(strides, encoder.channels, shapes, strict=True):
        cells_fit = all(p // stride <= c <= -(-p // stride) for p, c in zip(PROBE, shape[1:], strict=True))
        if not cells_fit or shape[0] != channels:
            size = "×".join(map(str, shape))
            raise UserError(
                f"model.backbone {backbone}: gives {size} features of {PROBE[0]}×{PROBE[1]} pixels, "
                f"which is not stride {stride}. {WAY_OUT}"
            )
    encoder.train()
