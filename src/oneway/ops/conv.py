"""Convolutions whose weight gradients are computed on a side stream, concurrent with the rest of the backward pass.

A layer's backward pass has two halves: the gradient of its input, which the layer before needs next, and that of its
weights, which is needed only when all gradients are complete. The second is deferred; `cast_together` joins it.

A classifier has a channel for each class, seldom a multiple of eight, and with other numbers of channels GPUs multiply
several times slower: the weights are padded with zeros, and the padding is removed from the result.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from oneway.ops.cast import uses_of
from oneway.ops.rows import channels_last
from oneway.ops.side_stream import defer

LARGEST = 2**23
"""Most numbers that are held for a deferred gradient, a few megabytes: larger layers fill a GPU by themselves."""


CHANNELS_AT_ONCE = 8


def conv(x: Tensor, layer: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The layer's convolution of x, with weights that `cast_together` has cast."""
    plain = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    forwards = forward_ad.unpack_dual(x).tangent is not None  # a derivative that is not known here
    if not plain or forwards:
        return nn.Conv2d.forward(layer, x)
    settings = layer.stride, layer.padding, layer.dilation, layer.groups
    x = x.to(weight.dtype)
    if uses_of(weight) is None or not torch.is_grad_enabled():
        return _convolved(x, *_pad_channels(weight, bias, layer.groups), settings, len(weight))
    y: Tensor = _Conv.apply(x, weight, bias, settings)
    return y


def _pad_channels(weight: Tensor, bias: Tensor | None, groups: int) -> tuple[Tensor, Tensor | None]:
    """Pad the output channels with zeros; not without a bias, since a norm follows, which needs dense channels."""
    missing = -len(weight) % CHANNELS_AT_ONCE
    if bias is None or groups > 1 or not missing:
        return weight, bias
    return F.pad(weight, (0,) * 7 + (missing,)), F.pad(bias, (0, missing))


def _convolved(x: Tensor, weight: Tensor, bias: Tensor | None, settings: tuple[Any, ...], channels: int) -> Tensor:
    y = F.conv2d(x, weight, bias, *settings)
    return y if y.shape[1] == channels else y[:, :channels]


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, settings: tuple[Any, ...]) -> Tensor:
        ctx.uses = uses_of(weight)
        ctx.uses.begin()
        ctx.channels = len(weight)
        weight, bias = _pad_channels(weight, bias, settings[-1])
        ctx.save_for_backward(x, weight)
        ctx.settings, ctx.biases = settings, None if bias is None else list(bias.shape)
        return _convolved(x, weight, bias, settings, ctx.channels)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.settings
        settings = (ctx.biases, stride, padding, dilation, False, (0, 0), groups)
        if len(weight) > ctx.channels:
            upstream = F.pad(channels_last(upstream), (0, 0, 0, 0, 0, len(weight) - ctx.channels))

        def gradients(*wanted: bool) -> tuple[Tensor | None, ...]:
            found: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(
                upstream, x, weight, *settings, wanted
            )
            return found[0], *(each if each is None else each[: ctx.channels] for each in found[1:])

        of_x = gradients(True, False, False)[0] if ctx.needs_input_grad[0] else None
        alone, learns = ctx.uses.end(), ctx.needs_input_grad[1]
        if alone and learns and x.is_cuda and x.numel() + upstream.numel() <= LARGEST:
            _, of_weight, of_bias = defer(lambda: gradients(False, True, ctx.biases is not None), x, upstream)
        else:
            _, of_weight, of_bias = gradients(False, learns, ctx.biases is not None)
        return of_x, of_weight, of_bias, None
