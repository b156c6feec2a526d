"""Batch norm with the sum before it, as in blocks that activate first: both are wanted, the sum and its norm.

The sum is made by the pass that takes its statistics, or, where they are known, by the one that normalises. Backwards,
what the sum itself is sent, by the shortcut of the next block, joins in the last pass.

Shapes: N×C×H×W in channels-last layout.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from oneway.kernels.norm import channels_last, supports_norm
from oneway.kernels.norm_passes import Affine, norm_gradients, normalise
from oneway.kernels.rows import Sum
from oneway.kernels.statistics import Running, Statistics, batch_statistics


def supports_sum_norm(a: Tensor, b: Tensor) -> bool:
    """Whether `fused_sum_norm` can take two tensors."""
    return supports_norm(a, b) and supports_norm(b)


def fused_sum_norm(
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    bias: Tensor,
    statistics: Statistics | None,
    running: Running | None,
    eps: float,
    relu: bool = True,
) -> tuple[Tensor, Tensor]:
    """The sum, and `F.batch_norm` of it, rectified.

    With the given statistics, or, where there are none, the sum's own, which the running ones follow.
    """
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
