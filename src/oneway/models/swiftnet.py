"""SwiftNet: an encoder, a spatial pyramid, and three upsampling blocks with lateral connections.

Shapes: N images of H×W pixels; logits of C classes at h×w, a quarter of that.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oneway import ops
from oneway.models.encoder import pyramid_encoder
from oneway.models.image import ImageModel
from oneway.models.tiles import TilePosition

FEATURES = 128
PYRAMID_GRIDS = (8, 4, 2)
PYRAMID_MOMENTUM = 0.005
"""Pooled features have few samples per image; their statistics are averaged over more iterations."""


class SwiftNet(ImageModel):
    """Logits at stride 4 of RGB images in [0, 1]; the normalisation is part of the model.

    Only the pyramid sees the whole image, so that large images can be predicted in tiles (`TileableNetwork`).
    """

    def __init__(self, classes: int, backbone: str = "resnet18", width: float = 1.0) -> None:
        encoder = pyramid_encoder(backbone, width)
        super().__init__(encoder.mean, encoder.deviation)
        self.encoder = encoder
        features = round(width * FEATURES)
        *skips, deepest = encoder.channels
        self.pyramid = SpatialPyramid(deepest, features)
        self.upsampling = nn.ModuleList(UpsamplingBlock(skip, features) for skip in reversed(skips))
        self.head = norm_relu_conv(features, classes, kernel=1, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        *skips, deepest = self.encoder(self.normalise(x))
        return self.decode(skips, self.pyramid(deepest))

    def survey(self, x: Tensor) -> Tensor:
        """The pyramid's input at stride 32, of an image or of a tile."""
        return self.pyramid.bottleneck(self.encoder(self.normalise(x))[-1])

    def context(self, surveyed: Tensor) -> Tensor:
        """The pyramid's output at stride 32, from the surveyed features of a whole image."""
        return self.pyramid.pool(surveyed)

    def within(self, x: Tensor, context: Tensor, position: TilePosition) -> Tensor:
        """Logits of a tile, from its section of the context map."""
        *skips, _ = self.encoder(self.normalise(x))
        return self.decode(skips, context, position)

    def decode(self, skips: list[Tensor], x: Tensor, position: TilePosition | None = None) -> Tensor:
        """Logits from features at strides 4, 8 and 16 and the pyramid's output."""
        for block, skip, stride in zip(self.upsampling, reversed(skips), (16, 8, 4), strict=True):
            if position is not None:
                x = position.resize(x, (skip.shape[-2], skip.shape[-1]), stride)
            x = block(x, skip)
        return self.head(x)


class SpatialPyramid(nn.Module):
    """Context at several scales: features pooled onto coarse grids, projected, and concatenated with the input."""

    def __init__(self, channels: int, features: int) -> None:
        super().__init__()
        level = features // len(PYRAMID_GRIDS)
        self.bottleneck = norm_relu_conv(channels, features, kernel=1, momentum=PYRAMID_MOMENTUM)
        self.levels = nn.ModuleList(
            norm_relu_conv(features, level, kernel=1, momentum=PYRAMID_MOMENTUM) for _ in PYRAMID_GRIDS
        )
        fused = features + level * len(PYRAMID_GRIDS)
        self.fuse = norm_relu_conv(fused, features, kernel=1, momentum=PYRAMID_MOMENTUM)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.bottleneck(x))

    def pool(self, x: Tensor) -> Tensor:
        """Pool, project and fuse features that have passed the bottleneck."""
        height, width = x.shape[-2:]
        scales = [x]
        for rows, project in zip(PYRAMID_GRIDS, self.levels, strict=True):
            columns = max(1, nearest(rows * width, height))  # cells stay square
            pooled = F.adaptive_avg_pool2d(x, (rows, columns))
            scales.append(ops.resize(project(pooled), (height, width)))
        return self.fuse(torch.cat(scales, dim=1))


class UpsamplingBlock(nn.Module):
    """Brings the features to the resolution of a lateral connection, adds it, and blends the two."""

    def __init__(self, skip_channels: int, features: int) -> None:
        super().__init__()
        self.lateral = norm_relu_conv(skip_channels, features, kernel=1)
        self.blend = norm_relu_conv(features, features, kernel=3)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        skip = self.lateral(skip)
        return self.blend(ops.resize(x, (skip.shape[-2], skip.shape[-1]), skip))


def norm_relu_conv(inputs: int, outputs: int, kernel: int, bias: bool = False, momentum: float = 0.1) -> nn.Sequential:
    """Batch norm, ReLU, convolution: the order of pre-activation networks."""
    return nn.Sequential(
        nn.BatchNorm2d(inputs, momentum=momentum),
        nn.ReLU(),
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=bias),
    )


def nearest(numerator: int, denominator: int) -> int:
    """round(numerator / denominator), ties to even, in integer arithmetic, which exporters can trace symbolically."""
    odd = numerator // denominator % 2
    return (2 * numerator + denominator - 1 + odd) // (2 * denominator)
