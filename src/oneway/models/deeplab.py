"""DeepLab: context from dilated convolutions, in the two forms the paper compares with.

Shapes: N images of H×W pixels; logits of C classes at h×w, an eighth (v2) or a quarter (v3+) of that.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oneway import ops
from oneway.models.encoder import FeatureEncoder
from oneway.models.image import ImageModel

V2_RATES = (6, 12, 18, 24)
V3_RATES = (6, 12, 18)
FEATURES = 256
LOW_LEVEL_FEATURES = 48


class DeepLabV2(ImageModel):
    """Logits at stride 8: an encoder dilated to that stride, and four dilated classifiers whose logits are added."""

    def __init__(self, classes: int, backbone: str = "resnet101", width: float = 1.0) -> None:
        encoder = FeatureEncoder(backbone, strides=(8,), width=width)
        super().__init__(encoder.mean, encoder.deviation)
        self.encoder = encoder
        (channels,) = encoder.channels
        self.classifiers = nn.ModuleList(
            nn.Conv2d(channels, classes, kernel_size=3, padding=rate, dilation=rate) for rate in V2_RATES
        )

    def forward(self, x: Tensor) -> Tensor:
        (features,) = self.encoder(self.normalise(x))
        return torch.stack([classify(features) for classify in self.classifiers]).sum(dim=0)


class DeepLabV3Plus(ImageModel):
    """Logits at stride 4: a pyramid of dilated convolutions at stride 16, joined by fine features at stride 4."""

    def __init__(self, classes: int, backbone: str = "resnet50", width: float = 1.0) -> None:
        encoder = FeatureEncoder(backbone, strides=(4, 16), width=width)
        super().__init__(encoder.mean, encoder.deviation)
        self.encoder = encoder
        low_level, deepest = encoder.channels
        features, low_level_features = round(width * FEATURES), round(width * LOW_LEVEL_FEATURES)
        self.pyramid = DilatedPyramid(deepest, features)
        self.low_level = conv_norm_relu(low_level, low_level_features, kernel=1)
        self.blend = nn.Sequential(
            conv_norm_relu(features + low_level_features, features, kernel=3),
            conv_norm_relu(features, features, kernel=3),
        )
        self.head = nn.Conv2d(features, classes, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        low_level, deepest = self.encoder(self.normalise(x))
        fine = self.low_level(low_level)
        coarse = ops.resize(self.pyramid(deepest), (fine.shape[-2], fine.shape[-1]))
        return self.head(self.blend(torch.cat((coarse, fine), dim=1)))


class DilatedPyramid(nn.Module):
    """Context at several scales: 1×1, 3×3 at growing rates, and the mean of the image, side by side and projected."""

    def __init__(self, channels: int, features: int) -> None:
        super().__init__()
        self.scales = nn.ModuleList(
            [
                conv_norm_relu(channels, features, kernel=1),
                *(conv_norm_relu(channels, features, kernel=3, rate=rate) for rate in V3_RATES),
            ]
        )
        self.whole = conv_norm_relu(channels, features, kernel=1)
        self.project = conv_norm_relu((len(self.scales) + 1) * features, features, kernel=1)

    def forward(self, x: Tensor) -> Tensor:
        whole = self.whole(F.adaptive_avg_pool2d(x, 1)).expand(-1, -1, *x.shape[-2:])
        return self.project(torch.cat([*(scale(x) for scale in self.scales), whole], dim=1))


def conv_norm_relu(inputs: int, outputs: int, kernel: int, rate: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU, at the resolution of the input."""
    padding = rate * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=padding, dilation=rate, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )
