"""The first convolution of an encoder, on images."""

from __future__ import annotations

from timm.layers import Conv2dSame
from torch import Tensor, nn

from oneway import ops


class Stem(nn.Conv2d):
    """A convolution of a few channels at stride 2."""

    same: bool
    """Whether it pads as TensorFlow does: by what the size of an image needs, the larger half behind."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.stem(x, self, self.same)


def become_stem(conv: nn.Conv2d) -> None:
    """Turns the convolution of an encoder that sees images into one of ours."""
    if type(conv) in (nn.Conv2d, Conv2dSame) and conv.in_channels == 3 and conv.stride == (2, 2):
        same = type(conv) is Conv2dSame
        conv.__class__ = Stem
        conv.same = same  # type: ignore[assignment]
