"""Convolutions whose weights get their gradient beside the way back, which does not wait for it.

A layer's backward pass has two halves: the gradient of its input, which the layer before waits for, and that of its
weights, which nobody waits for until all are there. The second runs on a stream of its own; `cast_together` waits.

A convolution of single pixels is a product of matrices, and computed as one: a row for each pixel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from oneway.ops.beside import aside
from oneway.ops.cast import Uses, uses_of
from oneway.ops.rows import channels_last

LARGEST = 2**23
"""Numbers that are held for a gradient, at most: a few megabytes, and larger layers fill a GPU by themselves."""
MATRICES = True
"""Whether convolutions of single pixels are products of matrices."""


def conv(x: Tensor, layer: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a layer makes of x with weights that `cast_together` has cast."""
    plain = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    forwards = forward_ad.unpack_dual(x).tangent is not None  # a derivative that is not known here
    if not plain or forwards:
        return nn.Conv2d.forward(layer, x)
    settings = layer.stride, layer.padding, layer.dilation, layer.groups
    x = x.to(weight.dtype)
    if uses_of(weight) is None or not torch.is_grad_enabled():
        return _forwards(x, weight, bias, settings)
    y: Tensor = _Conv.apply(x, weight, bias, settings)
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
        return _forwards(x, weight, bias, settings)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_parameters = _backwards(upstream, x, weight, ctx.settings, ctx.biases)
        gradient = of_x() if ctx.needs_input_grad[0] else None
        alone = goes_aside(ctx.uses, x, upstream)
        if not ctx.needs_input_grad[1]:
            return gradient, None, None, None
        return gradient, *(aside(of_parameters, x, upstream) if alone else of_parameters()), None


def _forwards(x: Tensor, weight: Tensor, bias: Tensor | None, settings: tuple[Any, ...]) -> Tensor:
    if _is_product(x, weight, settings):
        return F.linear(x.permute(0, 2, 3, 1), weight.flatten(1), bias).permute(0, 3, 1, 2)
    return F.conv2d(x, weight, bias, *settings)


def _backwards(
    upstream: Tensor, x: Tensor, weight: Tensor, settings: tuple[Any, ...], biases: list[int] | None
) -> tuple[Callable[[], Tensor | None], Callable[[], tuple[Tensor | None, Tensor | None]]]:
    """Two functions: the gradient of x, and those of weight and bias."""
    if _is_product(x, weight, settings):
        sent, rows = (channels_last(each).permute(0, 2, 3, 1).flatten(0, 2) for each in (upstream, x))
        matrix = weight.flatten(1)
        n, _, height, width = x.shape
        return (
            lambda: (sent @ matrix).view(n, height, width, -1).permute(0, 3, 1, 2),
            lambda: ((sent.t() @ rows).view_as(weight), None if biases is None else sent.sum(dim=0)),
        )
    stride, padding, dilation, groups = settings
    more = (biases, stride, padding, dilation, False, (0, 0), groups)

    def gradients(*wanted: bool) -> tuple[Tensor | None, ...]:
        found: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(upstream, x, weight, *more, wanted)
        return found

    def of_parameters() -> tuple[Tensor | None, Tensor | None]:
        _, of_weight, of_bias = gradients(False, True, biases is not None)
        return of_weight, of_bias

    return lambda: gradients(True, False, False)[0], of_parameters


def _is_product(x: Tensor, weight: Tensor, settings: tuple[Any, ...]) -> bool:
    pointwise = weight.shape[2:] == (1, 1) and settings == ((1, 1), (0, 0), (1, 1), 1)
    return MATRICES and pointwise and x.is_contiguous(memory_format=torch.channels_last)
