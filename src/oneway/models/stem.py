"""The convolutions with Triton kernels: the stem of an encoder, and depthwise ones."""

from __future__ import annotations

import sys

from torch import Tensor, nn

from oneway import ops


class Stem(nn.Conv2d):
    """The first convolution of an encoder: few channels, stride 2."""

    same: bool
    """Whether it pads as TensorFlow's `SAME` does: as the image size needs, the larger half behind."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.stem(x, self, self.same)


class Depthwise(nn.Conv2d):
    """A depthwise convolution."""

    same: bool
    """Whether it pads as TensorFlow's `SAME` does."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.depthwise(x, self, self.same)


def become_stem(conv: nn.Conv2d) -> None:
    """Turn the first convolution of an encoder into a `Stem`, in place."""
    if conv.in_channels == 3 and conv.stride == (2, 2):
        _become(conv, Stem)


def become_depthwise(conv: nn.Conv2d) -> None:
    """Turn a depthwise convolution into a `Depthwise`, in place."""
    if conv.groups == conv.in_channels == conv.out_channels > 1:
        _become(conv, Depthwise)


def _become(conv: nn.Conv2d, kind: type[Stem | Depthwise]) -> None:
    """Change the class of a convolution; unknown subclasses, which may compute something else, are left alone."""
    padded_same = getattr(sys.modules.get("timm.layers"), "Conv2dSame", None)  # exists if timm is loaded
    if type(conv) in (nn.Conv2d, padded_same):
        same = type(conv) is not nn.Conv2d
        conv.__class__ = kind
        conv.same = same  # type: ignore[assignment]
