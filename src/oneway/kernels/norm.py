"""Batch norm with the sum and the ReLU behind it: one pass forwards, two passes back.

Nothing is kept for the way back but x and what each channel has: whether a number passed the ReLU is computed again,
or, with a residual, read off y, which the layer behind has kept anyway.

Shapes: N×C×H×W in channels-last layout.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from oneway.kernels.norm_passes import Affine, norm_gradients, normalise
from oneway.kernels.statistics import Statistics

INTERPRETED = bool(triton.knobs.runtime.interpret)


def supports_norm(x: Tensor, residual: Tensor | None = None) -> bool:
    """Whether the fused norms can take a tensor, and one to be added."""
    return (
        (x.is_cuda or INTERPRETED)
        and x.ndim == 4
        and x.numel() > x.shape[1]  # a variance needs two numbers
        and x.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and x.is_contiguous(memory_format=torch.channels_last)
        and (residual is None or (residual.dtype == x.dtype and residual.shape == x.shape))
        and forward_ad.unpack_dual(x).tangent is None  # a kernel has no forward-mode derivative
    )


def fused_norm(
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
