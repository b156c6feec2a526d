"""The convolutions that kernels of ours do: the first of an encoder, on images, and those of each channel by itself."""

from __future__ import annotations

import sys

from torch import Tensor, nn

from oneway import ops


class Stem(nn.Conv2d):
    """A convolution of a few channels at stride 2."""

    same: bool
    """Whether it pads as TensorFlow does: by what the size of an image needs, the larger half behind."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.stem(x, self, self.same)


class Depthwise(nn.Conv2d):
    """A convolution of each channel by itself."""

    same: bool
    """As above."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.depthwise(x, self, self.same)


def become_stem(conv: nn.Conv2d) -> None:
    """Turns the convolution of an encoder that sees images into one of ours."""
    if conv.in_channels == 3 and conv.stride == (2, 2):
        _become(conv, Stem)


def become_depthwise(conv: nn.Conv2d) -> None:
    """Turns a convolution of each channel by itself into one of ours."""
    if conv.groups == conv.in_channels == conv.out_channels > 1:
        _become(conv, Depthwise)


def _become(conv: nn.Conv2d, kind: type[Stem | Depthwise]) -> None:
    """Not a subclass that is not known here, which may do more."""
    padded_same = getattr(sys.modules.get("timm.layers"), "Conv2dSame", None)  # timm's own; nobody has one without it
    if type(conv) in (nn.Conv2d, padded_same):
        same = type(conv) is not nn.Conv2d
        conv.__class__ = kind
        conv.same = same  # type: ignore[assignment]
