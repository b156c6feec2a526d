"""A workaround for a memory overrun in oneDNN, which crashed narrow networks on CPUs."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

BLOCK = 16
"""Channels that oneDNN computes at once on CPUs with AVX-512: layers with fewer are affected."""

SMALL = 32 * 32
"""Pixels up to which there is no overrun."""


class Subsampled(nn.Conv2d):
    """A strided 1×1 convolution, computed as subsampling followed by a 1×1 convolution without a stride.

    oneDNN (of PyTorch 2.15) writes the input gradient of such a convolution with up to sixteen output channels past the
    end of its memory where the input has fewer than sixteen channels, even sides, and channels-last layout.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The result of `nn.Conv2d`."""
        height, width = x.shape[-2:]
        if not x.requires_grad or height * width <= SMALL:
            return super().forward(x)
        return F.conv2d(x[..., :: self.stride[0], :: self.stride[1]], self.weight, self.bias)


def avoid_onednn_overrun(network: nn.Module) -> nn.Module:
    """Replace convolutions that could crash on a CPU, in place; tensors keep their names."""
    for module in network.modules():
        if (
            type(module) is nn.Conv2d
            and (module.kernel_size, module.groups, module.padding) == ((1, 1), 1, (0, 0))
            and module.stride != (1, 1)
            and module.in_channels < BLOCK
        ):
            module.__class__ = Subsampled  # with all that it has, and all that holds it
    return network
