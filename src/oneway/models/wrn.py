"""Wide ResNet: a residual network for small images, shallow and wide, of pre-activation blocks.

Shapes: N images of H×W pixels; logits of C classes, one vector per image.
"""

from __future__ import annotations

from timm.layers import BatchNormAct2d
from torch import Tensor, nn

from oneway.models.image import ImageModel

STEM_CHANNELS = 16
GROUPS = ((16, 1), (32, 2), (64, 2))
"""Channels at width 1, and the stride with which a group begins."""

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_DEVIATION = (0.2470, 0.2435, 0.2616)


class WideResNet(ImageModel):
    """Logits (N×C) of RGB images in [0, 1], WRN-depth-width; the normalisation is part of the model."""

    def __init__(self, classes: int, depth: int = 28, width: int = 2) -> None:
        super().__init__(CIFAR_MEAN, CIFAR_DEVIATION)
        blocks = _blocks_per_group(depth)
        self.stem = _conv(3, STEM_CHANNELS, kernel=3)
        self.groups = nn.Sequential()
        channels = STEM_CHANNELS
        for base, stride in GROUPS:
            first = Block(channels, channels := base * width, stride)
            self.groups.append(nn.Sequential(first, *(Block(channels, channels) for _ in range(blocks - 1))))
        self.norm = BatchNormAct2d(channels)  # with the ReLU inside, as everywhere below
        self.head = nn.Linear(channels, classes)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.groups(self.stem(self.normalise(x)))
        return self.head(self.norm(x).mean(dim=(2, 3)))


class Block(nn.Module):
    """Norm, ReLU, convolution, twice, added to the input.

    Where the shape changes, the input is projected *after* its norm and ReLU; elsewhere it passes untouched.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.norm1 = BatchNormAct2d(inputs)
        self.conv1 = _conv(inputs, outputs, kernel=3, stride=stride)
        self.norm2 = BatchNormAct2d(outputs)
        self.conv2 = _conv(outputs, outputs, kernel=3)
        same_shape = inputs == outputs and stride == 1
        self.shortcut = None if same_shape else _conv(inputs, outputs, kernel=1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        activated = self.norm1(x)
        residual = self.conv2(self.norm2(self.conv1(activated)))
        return residual + (x if self.shortcut is None else self.shortcut(activated))


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias, with He's initial weights for the backward pass (`fan_out`)."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _blocks_per_group(depth: int) -> int:
    """The number n of blocks in each of three groups: depth 6n + 4 counts two layers a block, stem and shortcuts."""
    blocks, remainder = divmod(depth - 4, 6)
    if blocks < 1 or remainder:
        below = 6 * blocks + 4
        nearest = "10" if blocks < 1 else f"{below} and {below + 6}"
        raise ValueError(f"depth {depth}: a Wide ResNet has 6n + 4 layers, n ≥ 1; the nearest: {nearest}.")
    return blocks
