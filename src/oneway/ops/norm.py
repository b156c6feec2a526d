"""Batch norm fused with an activation after it and a sum before or after it: one pass forwards, two passes backwards.

Where the sum comes first, as in pre-activation blocks, both the sum and its norm are outputs. The sum is computed by
the pass over its statistics, or, where these are known, by the pass that normalises. Backwards, the sum's own gradient,
which comes from the next block's shortcut, is added in the last pass.

Only x and the channels' statistics are saved for the backward pass: the input of the activation is recomputed. With a
residual between norm and ReLU, the ReLU's mask is read off y, which the next layer has saved anyway.

Shapes: N×C×H×W, for kernels in channels-last layout.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from oneway.ops.activation import Activation, activate
from oneway.ops.backend import kernel_takes
from oneway.ops.norm_passes import Affine, Settings, norm_gradients, normalise
from oneway.ops.rows import Sum, channels_last
from oneway.ops.statistics import Running, Statistics, batch_statistics, following, population

WITH_RESIDUAL: tuple[Activation, ...] = ("none", "relu")
"""Activations that may follow a residual: their mask must be recoverable from y."""


def norm(x: Tensor, layer: nn.BatchNorm2d, activation: Activation = "none", residual: Tensor | None = None) -> Tensor:
    """The layer's norm of x, plus a residual of the same shape, then the activation."""
    if kernel_normalises(x, residual) and (residual is None or activation in WITH_RESIDUAL):
        statistics = population(layer) or batch_statistics(x, following(layer))
        return norm_by_kernel(x, layer.weight, layer.bias, statistics, layer.eps, activation, residual)
    y = nn.BatchNorm2d.forward(layer, x)
    return activate(y if residual is None else y + residual, activation)


def kernel_normalises(x: Tensor, residual: Tensor | None = None) -> bool:
    """Whether the kernels can take a tensor, and a residual."""
    return (
        x.ndim == 4
        and kernel_takes(x)
        and x.numel() > x.shape[1]  # a variance needs two numbers
        and x.is_contiguous(memory_format=torch.channels_last)
        and (residual is None or (residual.dtype == x.dtype and residual.shape == x.shape))
    )


def norm_by_kernel(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    statistics: Statistics,
    eps: float,
    activation: Activation = "relu",
    residual: Tensor | None = None,
) -> Tensor:
    """`F.batch_norm` of x with the given statistics, plus a residual of the same shape, then the activation."""
    y: Tensor = _Norm.apply(x, weight, bias, residual, statistics, eps, activation)
    return y


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        statistics: Statistics,
        eps: float,
        activation: Activation,
    ) -> Tensor:
        affine = Affine(statistics.mean, statistics.variance, weight, bias)
        y = normalise(x, affine, eps, activation, None if residual is None else channels_last(residual))
        ctx.save_for_backward(x, y if activation == "relu" and residual is not None else None, *affine)
        ctx.settings = Settings(statistics.of_batch, statistics.group, eps, activation)
        ctx.with_residual = residual is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, y, *affine = ctx.saved_tensors
        *found, of_residual = norm_gradients(channels_last(upstream), x, Affine(*affine), ctx.settings, y)
        return *found, of_residual if ctx.with_residual else None, None, None, None


def sum_norm(a: Tensor, b: Tensor | None, layer: nn.BatchNorm2d, activation: Activation) -> tuple[Tensor, Tensor]:
    """The sum of a and b, or a alone, and its norm and activation."""
    if b is not None and kernel_sums_and_normalises(a, b):
        statistics = population(layer), following(layer)
        return sum_norm_by_kernel(a, b, layer.weight, layer.bias, *statistics, layer.eps, activation)
    total = a if b is None else a + b
    return total, norm(total, layer, activation)


def kernel_sums_and_normalises(a: Tensor, b: Tensor) -> bool:
    """Whether the kernels can take the two terms of a sum."""
    return kernel_normalises(a, b) and kernel_normalises(b)


def sum_norm_by_kernel(
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    bias: Tensor,
    statistics: Statistics | None,
    running: Running | None,
    eps: float,
    activation: Activation = "relu",
) -> tuple[Tensor, Tensor]:
    """`sum_norm` by kernels, with the given statistics; with None, the sum's own, which update the running ones."""
    total, y = _SumNorm.apply(a, b, weight, bias, statistics, running, eps, activation)
    return total, y


class _SumNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        b: Tensor,
        weight: Tensor,
        bias: Tensor,
        statistics: Statistics | None,
        running: Running | None,
        eps: float,
        activation: Activation,
    ) -> tuple[Tensor, Tensor]:
        of_sum = Sum(b, total := torch.empty_like(a))
        used = statistics or batch_statistics(a, running, of_sum)
        affine = Affine(used.mean, used.variance, weight, bias)
        made = statistics is None  # by the pass that took the statistics
        y = normalise(total if made else a, affine, eps, activation, of_sum=None if made else of_sum)
        ctx.save_for_backward(total, *affine)
        ctx.settings = Settings(used.of_batch, used.group, eps, activation)
        ctx.set_materialize_grads(False)  # the last sum of a network has no gradient of its own
        return total, y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, sum_gradient: Tensor | None, upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        if upstream is None:
            return sum_gradient, sum_gradient, *[None] * 6
        total, *affine = ctx.saved_tensors
        sum_gradient = None if sum_gradient is None else channels_last(sum_gradient)
        found = norm_gradients(channels_last(upstream), total, Affine(*affine), ctx.settings, sum_gradient=sum_gradient)
        of_sum, of_weight, of_bias, _ = found
        # The same tensor for both terms, as in PyTorch's own sum: autograd accumulates in place only if it is unshared.
        return of_sum, of_sum, of_weight, of_bias, *[None] * 4
