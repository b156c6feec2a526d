"""Layers whose weights are cast to the precision of activations for a whole network at once."""

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
    """A convolution that knows its weights in a lower precision, where they are cast."""

    cast: Weights | None = None

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if (cast := _in_use(self, x)) is None else ops.conv(x, self, *cast)


class Linear(nn.Linear):
    """A linear layer, likewise."""

    cast: Weights | None = None

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if (cast := _in_use(self, x)) is None else F.linear(x, *cast)


KINDS: dict[type[nn.Module], type[nn.Module]] = {nn.Conv2d: Conv, nn.Linear: Linear}
"""What layers of a fused network become; a subclass may do more with its weights than multiply, and stays."""


def become_castable(layer: nn.Module) -> None:
    """Turns a layer into one of ours."""
    if type(layer) in KINDS:
        layer.__class__ = KINDS[type(layer)]


@contextmanager
def weights_in(dtype: torch.dtype, *networks: nn.Module) -> Iterator[None]:
    """Within the block, layers of ours need not be cast by autocast one by one: all are, in one pass at its beginning.

    Where autocast is off, they compute with their parameters; gradients are the parameters' in any case.
    """
    layers = [layer for network in networks for layer in network.modules() if isinstance(layer, Conv | Linear)]
    try:
        for learns in (True, False):  # of those that do not, no gradient is computed
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
