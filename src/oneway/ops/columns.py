"""Batch norm of few rows in one launch each way: a program has all rows of a few channels, and waits for nobody.

On small maps, the passes of `norm_passes` are too short to fill a GPU, and most of their time is that of three launches
one after another. Here a program adds up its channels and goes through them again, which finds them in its cache.

Shapes: N×C×H×W in channels-last layout, which is M rows (N·H·W) of C channels.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803, N806 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from oneway.ops.activation import Activation, activated, rectified, sent_back
from oneway.ops.backend import tl, triton
from oneway.ops.collective import current
from oneway.ops.rows import affine_of, channels_last, channels_of_program, tile_of, unit_of
from oneway.ops.statistics import Running, move, tell_autograd, tracked_by

MOST_ROWS = 4096
"""More are shared out between programs: one would read them for too long."""
CHANNELS, WARPS = 16, 16
"""Of a program: 32 bytes of bfloat16 in each row, the least that memory gives at a time."""
ROWS, ROWS_BACK = 1024, 512
"""What it reads at a time, of one tensor forwards and of two or three back: as much as its registers hold."""


def has_few_rows(x: Tensor) -> bool:
    """Whether one program should have all rows of a channel; processes that share a batch do not have them all."""
    return x.numel() // x.shape[1] <= MOST_ROWS and current() is None


def column_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: Running | None,
    eps: float,
    activation: Activation = "relu",
    residual: Tensor | None = None,
) -> Tensor:
    """Batch norm of x by its own statistics, which the running ones follow, plus a residual, activated."""
    y: Tensor = _ColumnNorm.apply(x, weight, bias, residual, running, eps, activation)
    return y


class _ColumnNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        running: Running | None,
        eps: float,
        activation: Activation,
    ) -> Tensor:
        y, (mean, variance) = torch.empty_like(x), torch.empty(2, x.shape[1], device=x.device)
        added = x if residual is None else channels_last(residual)
        flags = {"ACTIVATION": activation, "RESIDUAL": residual is not None}
        arguments = (mean, variance, *tracked_by(running, mean, variance), weight, bias, *_size(x), eps)
        _norm_columns_forward[_grid(x)](x, added, y, *arguments, **flags, ROWS=ROWS, **_constants(x))
        tell_autograd(running)
        ctx.save_for_backward(
            x, y if activation == "relu" and residual is not None else None, mean, variance, weight, bias
        )
        ctx.settings = eps, activation, residual is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, y, *affine = ctx.saved_tensors
        eps, activation, with_residual = ctx.settings
        upstream, gradient = channels_last(upstream), torch.empty_like(x)
        # A residual's gradient is what passed the ReLU.
        passed = upstream if y is None else torch.empty_like(upstream)
        sums = torch.empty(2, x.shape[1], device=x.device)
        tensors = (upstream, x, upstream if y is None else y, passed, gradient, sums)
        flags = {"ACTIVATION": activation, "RESIDUAL": y is not None}
        _norm_columns_backward[_grid(x)](*tensors, *affine, *_size(x), eps, **flags, ROWS=ROWS_BACK, **_constants(x))
        of_weight, of_bias = sums[1].to(affine[2].dtype), sums[0].to(affine[3].dtype)
        return gradient, of_weight, of_bias, passed if with_residual else None, None, None, None


def _size(x: Tensor) -> tuple[int, int]:
    return x.numel() // x.shape[1], x.shape[1] // unit_of(x.shape[1])


def _grid(x: Tensor) -> tuple[int, int]:
    return 1, triton.cdiv(x.shape[1], CHANNELS)


def _constants(x: Tensor) -> dict[str, int]:
    return {"CHANNELS": CHANNELS, "UNIT": unit_of(x.shape[1]), "num_warps": WARPS}


@triton.jit(do_not_specialize=["tracked", "count", "C"])
def _norm_columns_forward(
    x,
    added,
    y,
    mean,
    variance,
    running_mean,
    running_variance,
    batches,
    momentum,
    tracked,
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
    C = C * UNIT
    channel = channels_of_program(CHANNELS)
    inside, tiles = channel < C, tl.cdiv(count, ROWS)
    # Sums of what is left of a good guess at the mean: without it, a large mean takes a small variance's digits.
    place, exists = tile_of(tl.program_id(0), channel, count, C, ROWS)
    sample = tl.load(x + place, exists, other=0).to(tl.float32)
    guess = tl.sum(sample, axis=0, keep_dims=True) / tl.minimum(count, ROWS)
    total = tl.zeros((1, CHANNELS), tl.float32)
    squares = tl.zeros((1, CHANNELS), tl.float32)
    for tile in range(tiles):
        place, exists = tile_of(tile, channel, count, C, ROWS)
        left = tl.where(exists, tl.load(x + place, exists, other=0).to(tl.float32) - guess, 0)
        total += tl.sum(left, axis=0, keep_dims=True)
        squares += tl.sum(left * left, axis=0, keep_dims=True)
    centre = guess + total / count
    spread = tl.maximum(squares - total * total / count, 0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(mean + channel, centre, inside)
    tl.store(variance + channel, spread / count, inside)
    if tracked != 0:
        move(running_mean + channel, centre, momentum, inside)
        move(running_variance + channel, spread / (count - 1), momentum, inside)
        if tl.program_id(1) == 0:
            tl.store(batches, tl.load(batches) + 1)
    scale = tl.load(weight + channel, inside, other=0).to(tl.float32) / tl.sqrt(spread / count + eps)
    shift = tl.load(bias + channel, inside, other=0).to(tl.float32)
    for tile in range(tiles):
        place, exists = tile_of(tile, channel, count, C, ROWS)
        value = (tl.load(x + place, exists, other=0).to(tl.float32) - centre) * scale + shift
        if RESIDUAL:
            value += tl.load(added + place, exists, other=0).to(tl.float32)
        tl.store(y + place, activated(value, ACTIVATION).to(y.dtype.element_ty), exists)


@triton.jit(do_not_specialize=["count", "C"])
def _norm_columns_backward(
    upstream,
    x,
    y,
    passed,
    out,
    sums,
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
    """The gradients of bias and weight, Σ g and Σ g · x̂, and that of x, less what mean and variance take back."""
    C = C * UNIT
    channel = channels_of_program(CHANNELS)
    inside, tiles = channel < C, tl.cdiv(count, ROWS)
    centre, sharpness, scale, shift = affine_of(channel, mean, variance, weight, bias, C, eps)
    total = tl.zeros((1, CHANNELS), tl.float32)
    product = tl.zeros((1, CHANNELS), tl.float32)
    for tile in range(tiles):
        place, exists = tile_of(tile, channel, count, C, ROWS)
        away = tl.load(x + place, exists, other=0).to(tl.float32) - centre
        gradient = _passed(upstream, y, place, exists, away * (sharpness * scale) + shift, ACTIVATION, RESIDUAL)
        if RESIDUAL:
            tl.store(passed + place, gradient.to(passed.dtype.element_ty), exists)
        total += tl.sum(gradient, axis=0, keep_dims=True)
        product += tl.sum(gradient * (away * sharpness), axis=0, keep_dims=True)
    tl.store(sums + channel, total, inside)
    tl.store(sums + C + channel, product, inside)
    for tile in range(tiles):
        place, exists = tile_of(tile, channel, count, C, ROWS)
        away = tl.load(x + place, exists, other=0).to(tl.float32) - centre
        gradient = _passed(upstream, y, place, exists, away * (sharpness * scale) + shift, ACTIVATION, RESIDUAL)
        gradient -= total / count + away * sharpness * (product / count)
        tl.store(out + place, (gradient * (sharpness * scale)).to(out.dtype.element_ty), exists)


@triton.jit
def _passed(upstream, y, place, exists, value, ACTIVATION: tl.constexpr, RESIDUAL: tl.constexpr):
    """What passed the activation of a value, or, with a residual, that which shows in y."""
    gradient = tl.load(upstream + place, exists, other=0).to(tl.float32)
    if RESIDUAL:
        return rectified(tl.load(y + place, exists, other=0), gradient)
    return sent_back(value, gradient, ACTIVATION)
