"""Batch norm with the sum before it, as in blocks that activate first: both are wanted, the sum and its norm.

The sum is made by the pass that takes its statistics, or, where they are known, by the one that normalises. Backwards,
what the sum itself is sent, by the shortcut of the next block, joins in the last pass.

Shapes: N×C×H×W in channels-last layout.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from oneway.ops.norm import channels_last, kernel_normalises, norm
from oneway.ops.norm_passes import Affine, norm_gradients, normalise
from oneway.ops.rows import Sum
from oneway.ops.statistics import Running, Statistics, batch_statistics, following, population


def sum_norm(a: Tensor, b: Tensor | None, layer: nn.BatchNorm2d, relu: bool = True) -> tuple[Tensor, Tensor]:
    """The sum of a and b, or a alone, and what the layer makes of it, rectified."""
    if b is not None and kernel_sums_and_normalises(a, b):
        statistics = population(layer), following(layer)
        return sum_norm_by_kernel(a, b, layer.weight, layer.bias, *statistics, layer.eps, relu)
    total = a if b is None else a + b
    return total, norm(total, layer, relu)


def kernel_sums_and_normalises(a: Tensor, b: Tensor) -> bool:
    """Whether the kernels can take two tensors."""
    return kernel_normalises(a, b) and kernel_normalises(b)


def sum_norm_by_kernel(
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    bias: Tensor,
    statistics: Statistics | None,
    running: Running | None,
    eps: float,
    relu: bool = True,
) -> tuple[Tensor, Tensor]:
    """With the given statistics, or, where there are none, the sum's own, which the running ones follow."""
    total, y = _SumNorm.apply(a, b, weight, bias, statistics, running, eps, relu)
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
        relu: bool,
    ) -> tuple[Tensor, Tensor]:
        of_sum = Sum(b, total := torch.empty_like(a))
        mean, variance, of_batch = statistics or batch_statistics(a, running, of_sum)
        affine = Affine(mean, variance, weight, bias)
        y = (
            normalise(total, affine, eps, relu)
            if statistics is None
            else normalise(a, affine, eps, relu, of_sum=of_sum)
        )
        ctx.save_for_backward(total, *affine)
        ctx.settings = of_batch, eps, relu
        ctx.set_materialize_grads(False)  # the last sum of a network is sent nothing
        return total, y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, beside: Tensor | None, upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        if upstream is None:
            return beside, beside, *[None] * 6
        total, *affine = ctx.saved_tensors
        of_batch, eps, relu = ctx.settings
        beside = None if beside is None else channels_last(beside)
        found = norm_gradients(channels_last(upstream), total, Affine(*affine), of_batch, eps, relu, beside=beside)
        # One tensor for both, as PyTorch's own sum does it: autograd adds in place only to what nobody else holds.
        return found.x, found.x, found.weight, found.bias, *[None] * 4
