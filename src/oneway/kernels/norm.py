"""Batch norm with the sum and the ReLU behind it: one pass forwards, two passes back.

Forwards, y = relu(x̂ · weight + bias + residual) with x̂ = (x − mean) / √(variance + ε). Nothing is kept for the way back
but x and what each channel has: whether a number passed the ReLU is computed again, or, with a residual, read off y,
which the layer behind has kept anyway.

Shapes: N×C×H×W in channels-last layout, which is M rows (N·H·W) of C channels.
"""

# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from oneway.kernels.rows import (
    MAPPED,
    REDUCED,
    Rows,
    affine_of,
    channels_of_program,
    store_parts,
    summed,
    tile_of,
)
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
        y = torch.empty_like(x)
        rows = Rows.of(x, MAPPED)
        added = x if residual is None else channels_last(residual)
        _norm_forward[rows.grid](
            x,
            added,
            y,
            mean,
            variance,
            weight,
            bias,
            rows.count,
            rows.channels,
            eps,
            RELU=relu,
            RESIDUAL=residual is not None,
            **rows.constants(),
        )
        ctx.save_for_backward(x, weight, bias, mean, variance, y if relu and residual is not None else None)
        ctx.settings = eps, relu, of_batch, residual is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, variance, y = ctx.saved_tensors
        eps, relu, of_batch, with_residual = ctx.settings
        upstream = channels_last(upstream)
        # A residual's gradient is what passed the ReLU: the first pass writes it, and the second need not look again.
        passed = upstream if y is None else torch.empty_like(upstream)
        affine = (mean, variance, weight, bias)

        rows = Rows.of(x, REDUCED // 2)  # of two tensors
        parts = rows.parts(x.device)
        _norm_reduce[rows.walk](
            upstream,
            x,
            upstream if y is None else y,
            passed,
            parts,
            *affine,
            rows.count,
            rows.channels,
            eps,
            RELU=relu,
            RESIDUAL=y is not None,
            **rows.constants(),
        )
        sums = summed(parts)

        gradient = torch.empty_like(x)
        rows = Rows.of(x, MAPPED)
        _norm_backward[rows.grid](
            passed,
            x,
            gradient,
            sums,
            *affine,
            rows.count,
            rows.channels,
            eps,
            RELU=relu and y is None,
            OF_BATCH=of_batch,
            **rows.constants(),
        )
        of_bias, of_weight = sums[0].to(bias.dtype), sums[1].to(weight.dtype)
        return gradient, of_weight, of_bias, passed if with_residual else None, None, None, None, None, None


def channels_last(x: Tensor) -> Tensor:
    """The tensor in the layout of the kernels; a copy only where it is in another."""
    return x.contiguous(memory_format=torch.channels_last)


@triton.jit(do_not_specialize=["count"])
def _norm_forward(
    x,
    residual,
    y,
    mean,
    variance,
    weight,
    bias,
    count,
    C,
    eps,
    RELU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    channel = channels_of_program(CHANNELS)
    place, exists = tile_of(_from_behind(), channel, count, C, ROWS)
    centre, sharpness, scale, shift = affine_of(channel, mean, variance, weight, bias, C, eps)
    value = (tl.load(x + place, exists, other=0).to(tl.float32) - centre) * (sharpness * scale) + shift
    if RESIDUAL:
        value += tl.load(residual + place, exists, other=0).to(tl.float32)
    if RELU:
        value = rectified(value, value)
    tl.store(y + place, value.to(y.dtype.element_ty), exists)


@triton.jit(do_not_specialize=["count"])
def _norm_reduce(
    upstream,
    x,
    y,
    passed,
    parts,
    mean,
    variance,
    weight,
    bias,
    count,
    C,
    eps,
    RELU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The gradients of bias and weight, Σ g and Σ g · x̂, where g is what passed the ReLU."""
    channel = channels_of_program(CHANNELS)
    centre, sharpness, scale, shift = affine_of(channel, mean, variance, weight, bias, C, eps)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    product = tl.zeros((ROWS, CHANNELS), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
        place, exists = tile_of(tile, channel, count, C, ROWS)
        gradient = tl.load(upstream + place, exists, other=0).to(tl.float32)
        away = tl.load(x + place, exists, other=0).to(tl.float32) - centre
        if RELU:
            if RESIDUAL:
                gradient = rectified(tl.load(y + place, exists, other=0), gradient)
                tl.store(passed + place, gradient.to(passed.dtype.element_ty), exists)
            else:
                gradient = rectified(away * (sharpness * scale) + shift, gradient)
        total += gradient
        product += gradient * (away * sharpness)
    total, product = tl.sum(total, axis=0, keep_dims=True), tl.sum(product, axis=0, keep_dims=True)
    store_parts(parts, channel, total, product, C)


@triton.jit(do_not_specialize=["count"])
def _norm_backward(
    upstream,
    x,
    out,
    sums,
    mean,
    variance,
    weight,
    bias,
    count,
    C,
    eps,
    RELU: tl.constexpr,
    OF_BATCH: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The gradient of x: g, less what the batch's own mean and variance take back."""
    channel = channels_of_program(CHANNELS)
    place, exists = tile_of(_from_behind(), channel, count, C, ROWS)
    centre, sharpness, scale, shift = affine_of(channel, mean, variance, weight, bias, C, eps)
    gradient = tl.load(upstream + place, exists, other=0).to(tl.float32)
    away = tl.load(x + place, exists, other=0).to(tl.float32) - centre
    if RELU:
        gradient = rectified(away * (sharpness * scale) + shift, gradient)
    if OF_BATCH:
        gradient -= mean_of(sums, channel, count, C) + away * sharpness * mean_of(sums + C, channel, count, C)
    tl.store(out + place, (gradient * (sharpness * scale)).to(out.dtype.element_ty), exists)


@triton.jit
def rectified(value, passing):
    """What passes where the value is positive, or not a number, so that the latter shows in the result."""
    return tl.where(value <= 0, 0.0, passing)


@triton.jit
def mean_of(sums, channel, count, C):
    """1×CHANNELS: a channel's sum over the rows by their number."""
    return tl.load(sums + channel, channel < C, other=0) / count


@triton.jit
def _from_behind():
    """Tiles in the order that finds the last ones of the pass before still in the cache."""
    return tl.num_programs(0) - 1 - tl.program_id(0)
