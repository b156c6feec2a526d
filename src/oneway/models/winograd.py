"""Winograd convolutions for prediction on a CPU: 3×3 with two thirds of the multiplications."""

from __future__ import annotations

import platform
from copy import deepcopy

import torch
from torch import Tensor, nn

from oneway.models.fuse import is_watched
from oneway.ops.winograd import winograd_conv, winograd_weights

FEWEST_CHANNELS = 64
"""With fewer channels, Winograd's additions take longer than the multiplications that they save."""


class WinogradConv(nn.Conv2d):
    """A 3×3 convolution, by `winograd_conv` in inference mode; by PyTorch while training or tracing."""

    sums: Tensor
    """The transformed weights (`winograd_weights`)."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_inference_mode_enabled() and x.dtype == self.sums.dtype and x.device.type == "cpu":
            return winograd_conv(x, self.sums, self.bias)
        return super().forward(x)


def use_winograd(network: nn.Module) -> nn.Module:
    """Use Winograd convolutions in a float32 network on an x86 CPU, in place; its weights must not change afterwards.

    On other processors nothing changes: Winograd has not been measured against PyTorch there.
    """
    if platform.machine().lower() in ("x86_64", "amd64") and torch.backends.mkldnn.is_available():
        for module in network.modules():
            if type(module) is nn.Conv2d and _takes(module):
                module.__class__ = WinogradConv
                module.register_buffer("sums", winograd_weights(module.weight.detach()), persistent=False)
    return network


def without_products(network: nn.Module) -> nn.Module:
    """A copy of a network as it was before `use_winograd`, if that has changed it; else the network itself.

    A file that is made of it would hold the sums beside the weights, and never use them.
    """
    if not any(isinstance(module, WinogradConv) for module in network.modules()):
        return network
    plain = deepcopy(network)
    for module in plain.modules():
        if isinstance(module, WinogradConv):
            module.__class__ = nn.Conv2d  # type: ignore[assignment] # which is what it was
            del module.sums
    return plain


def _takes(conv: nn.Conv2d) -> bool:
    shape = conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups, conv.padding_mode
    usual = shape == ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros") and conv.weight.dtype == torch.float32
    return usual and min(conv.in_channels, conv.out_channels) >= FEWEST_CHANNELS and not is_watched(conv)
