"""The kernels of a batch norm with its activation and sums: one pass forwards, two backwards.

Forwards, y = f(x̂ · weight + bias + residual) with x̂ = (x − mean) / √(variance + ε), where x may be a sum that the
pass makes. Backwards, the first pass finds the gradients of weight and bias, and the second that of x.

Shapes: N×C×H×W in channels-last layout, which is M rows (N·H·W) of C channels.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803, N806 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oneway.ops.activation import Activation, activated, activation_backward, rectified
from oneway.ops.backend import tl, triton
from oneway.ops.collective import Group
from oneway.ops.rows import (
    MAPPED,
    REDUCED,
    Rows,
    Sum,
    affine_of,
    channels_of_program,
    load_sum,
    store_parts,
    summed,
    tile_of,
)


class Affine(NamedTuple):
    """The parameters of a norm, of C channels each."""

    mean: Tensor
    variance: Tensor
    weight: Tensor
    bias: Tensor


class Settings(NamedTuple):
    """The settings of the forward pass that the backward passes need."""

    of_batch: bool  # whether the statistics are those of x, or of a batch that x is a share of
    group: Group | None  # the processes that have shares
    eps: float
    activation: Activation


def normalise(
    x: Tensor,
    affine: Affine,
    eps: float,
    activation: Activation,
    residual: Tensor | None = None,
    of_sum: Sum | None = None,
) -> Tensor:
    """The forward pass, with a residual after the norm or a sum before it, not both."""
    y = torch.empty_like(x)
    rows = Rows.of(x, MAPPED)
    added, kept = of_sum or (x if residual is None else residual, x)
    flags = {"ACTIVATION": activation, "RESIDUAL": residual is not None, "SUM": of_sum is not None}
    _norm_forward[rows.grid](x, added, kept, y, *affine, *rows.size, eps, **flags, **rows.constants())
    return y


def norm_gradients(
    upstream: Tensor,
    x: Tensor,
    affine: Affine,
    settings: Settings,
    y: Tensor | None = None,
    sum_gradient: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, weight, bias and a residual, in two passes; with a residual and a ReLU, y is needed.

    With the statistics of a group's batch, the sums in the gradient of x are over the group. `sum_gradient` is what x
    receives from the next block's shortcut, where x is a sum; it is added in single precision.
    """
    of_batch, group, eps, activation = settings
    # A residual's gradient is that behind the ReLU's mask: the first pass writes it, and the second reads it.
    passed = upstream if y is None else torch.empty_like(upstream)
    rows = Rows.of(x, REDUCED // 2)  # of two tensors
    parts = rows.parts(x.device)
    arguments = (*affine, *rows.size, eps)
    output = upstream if y is None else y
    flags = {"ACTIVATION": activation, "RESIDUAL": y is not None}
    _norm_reduce[rows.walk](upstream, x, output, passed, parts, *arguments, **flags, **rows.constants())
    sums, taken_back, shares = summed(parts, group)

    gradient = torch.empty_like(x)
    rows = Rows.of(x, MAPPED)
    received = x if sum_gradient is None else sum_gradient
    left = activation if y is None else "none"
    flags = {"ACTIVATION": left, "OF_BATCH": of_batch, "SUM_GRADIENT": sum_gradient is not None}
    _norm_backward[rows.grid](
        passed, x, received, gradient, taken_back, shares, *arguments, **flags, **rows.constants()
    )
    return gradient, sums[1].to(affine.weight.dtype), sums[0].to(affine.bias.dtype), passed


@triton.jit(do_not_specialize=["count", "C"])
def _norm_forward(
    x,
    added,
    kept,
    y,
    mean,
    variance,
    weight,
    bias,
    count,
    C,
    eps,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
    SUM: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    UNIT: tl.constexpr,
):
    C = C * UNIT
    channel = channels_of_program(CHANNELS)
    place, exists = tile_of(_from_behind(), channel, count, C, ROWS)
    centre, sharpness, scale, shift = affine_of(channel, mean, variance, weight, bias, C, eps)
    value = load_sum(x, added, place, exists, SUM)
    if SUM:
        tl.store(kept + place, value.to(kept.dtype.element_ty), exists)
    value = (value - centre) * (sharpness * scale) + shift
    if RESIDUAL:
        value += tl.load(added + place, exists, other=0).to(tl.float32)
    value = activated(value, ACTIVATION)
    tl.store(y + place, value.to(y.dtype.element_ty), exists)


@triton.jit(do_not_specialize=["count", "C"])
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
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    UNIT: tl.constexpr,
):
    """The gradients of bias and weight, Σ g and Σ g · x̂, where g is the gradient before the activation."""
    C = C * UNIT
    channel = channels_of_program(CHANNELS)
    centre, sharpness, scale, shift = affine_of(channel, mean, variance, weight, bias, C, eps)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    product = tl.zeros((ROWS, CHANNELS), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
        place, exists = tile_of(tile, channel, count, C, ROWS)
        gradient = tl.load(upstream + place, exists, other=0).to(tl.float32)
        away = tl.load(x + place, exists, other=0).to(tl.float32) - centre
        if RESIDUAL:
            gradient = rectified(tl.load(y + place, exists, other=0), gradient)
            tl.store(passed + place, gradient.to(passed.dtype.element_ty), exists)
        else:
            gradient = activation_backward(away * (sharpness * scale) + shift, gradient, ACTIVATION)
        total += gradient
        product += gradient * (away * sharpness)
    total, product = tl.sum(total, axis=0, keep_dims=True), tl.sum(product, axis=0, keep_dims=True)
    store_parts(parts, channel, total, product, C)


@triton.jit(do_not_specialize=["count", "C"])
def _norm_backward(
    upstream,
    x,
    sum_gradient,
    out,
    sums,
    shares,
    mean,
    variance,
    weight,
    bias,
    count,
    C,
    eps,
    ACTIVATION: tl.constexpr,
    OF_BATCH: tl.constexpr,
    SUM_GRADIENT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    UNIT: tl.constexpr,
):
    """The gradient of x: g, less the terms of the batch's mean and variance, plus the gradient of the sum itself."""
    C = C * UNIT
    channel = channels_of_program(CHANNELS)
    place, exists = tile_of(_from_behind(), channel, count, C, ROWS)
    centre, sharpness, scale, shift = affine_of(channel, mean, variance, weight, bias, C, eps)
    gradient = tl.load(upstream + place, exists, other=0).to(tl.float32)
    away = tl.load(x + place, exists, other=0).to(tl.float32) - centre
    gradient = activation_backward(away * (sharpness * scale) + shift, gradient, ACTIVATION)
    if OF_BATCH:
        first, second = mean_of(sums, channel, count, shares, C), mean_of(sums + C, channel, count, shares, C)
        gradient -= first + away * sharpness * second
    gradient *= sharpness * scale
    if SUM_GRADIENT:
        gradient += tl.load(sum_gradient + place, exists, other=0).to(tl.float32)
    tl.store(out + place, gradient.to(out.dtype.element_ty), exists)


@triton.jit
def mean_of(sums, channel, count, shares, C):
    """1×CHANNELS: the mean of a channel over the rows of all shares, from its sum."""
    return tl.load(sums + channel, channel < C, other=0) / count / shares


@triton.jit
def _from_behind():
    """The program's tile, in reverse order: the last tiles of the pass before are still in the cache."""
    return tl.num_programs(0) - 1 - tl.program_id(0)
