"""ResNet-18 and ResNet-34, the encoders of SwiftNet.

Names, initial weights and results are those of timm's, to the bit. Importing timm takes longer than a small prediction,
and these two networks need none of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
"""Blocks of each stage, by the name of the network."""

STEM_CHANNELS = 64


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        # Built first, since timm's blocks draw its initial weights first.
        shortcut = shortcut_conv(inputs, outputs, stride) if stride != 1 or inputs != outputs else None
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.act1 = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.act2: nn.Module = nn.ReLU(inplace=True)
        self.downsample = shortcut

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.bn2(self.conv2(self.act1(self.bn1(self.conv1(x)))))
        x += shortcut
        return self.act2(x)


class ResNet(nn.Module):
    """The stem and the four stages; no classifier."""

    def __init__(self, depths: Sequence[int], channels: Sequence[int]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, STEM_CHANNELS, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(STEM_CHANNELS)
        self.act1 = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inputs = STEM_CHANNELS
        for number, (depth, outputs) in enumerate(zip(depths, channels, strict=True), start=1):
            blocks = []
            for index in range(depth):
                blocks.append(BasicBlock(inputs, outputs, stride=2 if number > 1 and index == 0 else 1))
                inputs = outputs
            self.add_module(f"layer{number}", nn.Sequential(*blocks))
        if not self.conv1.weight.is_meta:  # where there are only shapes, drawing would import PyTorch's compiler
            self._initialise()

    def _initialise(self) -> None:
        """He et al.'s initial weights; the last norm of each block starts at zero, so the block at its shortcut."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        for module in self.modules():
            if isinstance(module, BasicBlock):
                nn.init.zeros_(module.bn2.weight)


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 3×3 convolution that keeps the size, or halves it at stride 2."""
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


def shortcut_conv(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """The 1×1 convolution and norm that bring a block's input to the shape of its output."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))
