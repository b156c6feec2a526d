"""Convolutions whose weights get their gradient beside the way back, which does not wait for it.

A layer's backward pass has two halves: the gradient of its input, which the layer before waits for, and that of its
weights, which nobody waits for until all are there. The second runs on a stream of its own; `cast_together` waits.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from oneway.ops.beside import aside
from oneway.ops.cast import Uses, uses_of

LARGEST = 2**23
"""Numbers that are held for a gradient, at most: a few megabytes, and larger layers fill a GPU by themselves."""


def conv(x: Tensor, layer: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a layer makes of x with weights that `cast_together` has cast."""
    plain = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    forwards = forward_ad.unpack_dual(x).tangent is not None  # a derivative that is not known here
    if not plain or forwards:
        return nn.Conv2d.forward(layer, x)
    settings = layer.stride, layer.padding, layer.dilation, layer.groups
    if uses_of(weight) is None or not torch.is_grad_enabled():
        return layer._conv_forward(x, weight, bias)
    y: Tensor = _Conv.apply(x.to(weight.dtype), weight, bias, settings)
    return y


def goes_aside(uses: Uses, *held: Tensor) -> bool:
    """Ends a use of a weight; whether its gradient may be computed from what is held while others go on."""
    return uses.end() and held[0].is_cuda and sum(tensor.numel() for tensor in held) <= LARGEST


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, settings: tuple[Any, ...]) -> Tensor:
        ctx.uses = uses_of(weight)
        ctx.uses.begin()
        ctx.save_for_backward(x, weight)
        ctx.settings, ctx.biases = settings, None if bias is None else list(bias.shape)
        return F.conv2d(x, weight, bias, *settings)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.settings
        settings = (ctx.biases, stride, padding, dilation, False, (0, 0), groups)

        def gradients(*wanted: bool) -> tuple[Tensor | None, ...]:
            found: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(
                upstream, x, weight, *settings, wanted
            )
            return found

        of_x = gradients(True, False, False)[0] if ctx.needs_input_grad[0] else None
        alone, learns = goes_aside(ctx.uses, x, upstream), ctx.needs_input_grad[1]
        if alone and learns:
            _, of_weight, of_bias = aside(lambda: gradients(False, True, ctx.biases is not None), x, upstream)
        else:
            _, of_weight, of_bias = gradients(False, learns, ctx.biases is not None)
        return of_x, of_weight, of_bias, None
