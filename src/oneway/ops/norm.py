"""Batch norm with the sum and the ReLU behind it; as kernels one pass forwards, two passes back.

Nothing is kept for the way back but x and what each channel has: whether a number passed the ReLU is computed again,
or, with a residual, read off y, which the layer behind has kept anyway.

Shapes: N×C×H×W, for kernels in channels-last layout.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from oneway.ops.backend import kernel_takes
from oneway.ops.norm_passes import Affine, norm_gradients, normalise
from oneway.ops.statistics import Statistics, batch_statistics, following, population


def norm(x: Tensor, layer: nn.BatchNorm2d, relu: bool = False, residual: Tensor | None = None) -> Tensor:
    """What the layer makes of x, plus a residual of the same shape, rectified."""
    if kernel_normalises(x, residual):
        statistics = population(layer) or batch_statistics(x, following(layer))
        return norm_by_kernel(x, layer.weight, layer.bias, statistics, layer.eps, relu, residual)
    y = nn.BatchNorm2d.forward(layer, x)
    y = y if residual is None else y + residual
    return F.relu(y) if relu else y


def kernel_normalises(x: Tensor, residual: Tensor | None = None) -> bool:
    """Whether the kernels of norms can take a tensor, and one to be added."""
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
    relu: bool = True,
    residual: Tensor | None = None,
) -> Tensor:
    """`F.batch_norm` of x with the given statistics, plus a residual of the same shape, rectified."""
    y: Tensor = _Norm.apply(x, weight, bias, residual, *statistics, eps, relu)
    return y


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        of_batch: bool,
        eps: float,
        relu: bool,
    ) -> Tensor:
        affine = Affine(mean, variance, weight, bias)
        y = normalise(x, affine, eps, relu, None if residual is None else channels_last(residual))
        ctx.save_for_backward(x, y if relu and residual is not None else None, *affine)
        ctx.settings = of_batch, eps, relu
        ctx.with_residual = residual is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, y, *affine = ctx.saved_tensors
        of_batch, eps, relu = ctx.settings
        found = norm_gradients(channels_last(upstream), x, Affine(*affine), of_batch, eps, relu, y)
        of_residual = found.passed if ctx.with_residual else None
        return found.x, found.weight, found.bias, of_residual, None, None, None, None, None


def channels_last(x: Tensor) -> Tensor:
    """The tensor in the layout of the kernels; a copy only where it is in another."""
    return x.contiguous(memory_format=torch.channels_last)
