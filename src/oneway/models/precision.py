"""The weights of a network in the precision of its activations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from oneway import ops


class Conv(nn.Conv2d):
    """A convolution as it stands in a fused network."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.conv(x, self)


CAST = (nn.Conv2d, Conv, nn.Linear)
"""Layers that do nothing with their weights but multiply; another subclass may, and is left to autocast."""


@contextmanager
def weights_in(dtype: torch.dtype, *networks: nn.Module) -> Iterator[None]:
    """Within the block, layers have their weights in a dtype, as under autocast; gradients are still the parameters'.

    All are cast in one pass at the beginning, where autocast casts them layer by layer.
    """
    layers = dict.fromkeys(module for network in networks for module in network.modules() if type(module) in CAST)
    kept: dict[tuple[nn.Module, str], Tensor] = {
        (layer, name): parameter
        for layer in layers
        for name, parameter in layer._parameters.items()
        if parameter is not None and parameter.dtype == torch.float32
    }
    try:
        for learns in (True, False):  # of those that do not, no gradient is computed
            some = {place: parameter for place, parameter in kept.items() if parameter.requires_grad == learns}
            for (layer, name), cast in zip(some, ops.cast_together(list(some.values()), dtype), strict=True):
                layer._parameters[name] = cast  # type: ignore[assignment]
        yield
    finally:
        for (layer, name), parameter in kept.items():
            layer._parameters[name] = parameter  # type: ignore[assignment]
