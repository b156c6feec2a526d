"""Mixed precision: the weights of a whole network are cast in one pass, not layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oneway import ops

Weights = tuple[Tensor, Tensor | None]
"""Weight and bias of a layer."""


class Conv(nn.Conv2d):
    """A convolution that uses the cast copy of its weights, where there is one."""

    cast: Weights | None = None

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if (cast := _in_use(self, x)) is None else ops.conv(x, self, *cast)


class Linear(nn.Linear):
    """A linear layer that uses the cast copy of its weights, where there is one."""

    cast: Weights | None = None

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if (cast := _in_use(self, x)) is None else F.linear(x, *cast)


KINDS: dict[type[nn.Module], type[nn.Module]] = {nn.Conv2d: Conv, nn.Linear: Linear}
"""Layers that can use cast weights. Subclasses are left alone: they may use their weights in other ways."""


def become_castable(layer: nn.Module) -> None:
    """Turn a layer into one that can use cast weights, in place."""
    if type(layer) in KINDS:
        layer.__class__ = KINDS[type(layer)]


@contextmanager
def weights_in(dtype: torch.dtype, *networks: nn.Module) -> Iterator[None]:
    """Cast the weights of all castable layers in one pass; within the block, autocast need not cast them one by one.

    Where autocast is off, layers use their parameters. Gradients are those of the parameters in any case.
    """
    layers = [layer for network in networks for layer in network.modules() if isinstance(layer, Conv | Linear)]
    try:
        for learns in (True, False):  # frozen layers apart: they need no gradient
            some = [layer for layer in layers if layer.weight.requires_grad == learns]
            weights = iter(ops.cast_together([layer.weight for layer in some], dtype))
            biases = iter(ops.cast_together([layer.bias for layer in some if layer.bias is not None], dtype))
            for layer in some:
                layer.cast = next(weights), None if layer.bias is None else next(biases)
        yield
    finally:
        for layer in layers:
            layer.cast = None


def _in_use(layer: Conv | Linear, x: Tensor) -> Weights | None:
    return layer.cast if torch.is_autocast_enabled(x.device.type) else None
