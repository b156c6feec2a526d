"""A way around a defect of oneDNN, by which narrow networks crashed on CPUs."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

BLOCK = 16
"""Channels that oneDNN computes at once on CPUs with AVX-512."""

SMALL = 32 * 32
"""Pixels below which nothing is written where it does not belong."""


class Subsampled(nn.Conv2d):
    """A convolution of single pixels with a stride that leaves out pixels first, and then has none.

    The gradient that oneDNN (of PyTorch 2.15) computes for the input of such a convolution with up to sixteen channels
    is written past the end of its memory where the input has fewer of them, even sides, and its channels come last.
    """

    def forward(self, x: Tensor) -> Tensor:
        """As of `nn.Conv2d`."""
        height, width = x.shape[-2:]
        if not x.requires_grad or height * width <= SMALL:
            return super().forward(x)
        return F.conv2d(x[..., :: self.stride[0], :: self.stride[1]], self.weight, self.bias)


def avoid_overrun(network: nn.Module) -> nn.Module:
    """The network, whose tensors keep their names, without convolutions that could crash on a CPU."""
    for module in network.modules():
        if (
            type(module) is nn.Conv2d
            and (module.kernel_size, module.groups, module.padding) == ((1, 1), 1, (0, 0))
            and module.stride != (1, 1)
            and module.in_channels < BLOCK
        ):
            module.__class__ = Subsampled  # with all that it has, and all that holds it
    return network
