"""Batch norm, ReLU and 3×3 max-pool of stride 2, as in the stem of a ResNet, without intermediate tensors.

Window (i, j) has pixel (2i, 2j) in its middle, so there are as many windows as quads of 2×2 pixels. Forwards, a program
computes windows and writes which of their nine pixels is the maximum. Backwards, it computes quads: quad (i, j) lies in
window (i, j) and in those to its right, below, and below right, and gathers the gradients that its pixels receive.

Shapes: N×C×H×W in channels-last layout, N×C×h×w windows.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803, N806 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from oneway.ops.activation import rectified
from oneway.ops.backend import tl, triton
from oneway.ops.norm import kernel_normalises, norm
from oneway.ops.norm_passes import mean_of
from oneway.ops.rows import MAPPED, Rows, affine_of, channels_last, channels_of_program, store_parts, summed
from oneway.ops.statistics import Statistics, batch_statistics, following, population

NO_WINNER = tl.constexpr(9)
"""The winner's index where no pixel of a window passes the ReLU."""


def norm_pool(x: Tensor, layer: nn.BatchNorm2d) -> Tensor:
    """`F.max_pool2d(relu(layer(x)), kernel_size=3, stride=2, padding=1)`."""
    if kernel_normalises(x):
        statistics = population(layer) or batch_statistics(x, following(layer))
        return norm_pool_by_kernel(x, layer.weight, layer.bias, statistics, layer.eps)
    return F.max_pool2d(norm(x, layer, "relu"), kernel_size=3, stride=2, padding=1)


def norm_pool_by_kernel(x: Tensor, weight: Tensor, bias: Tensor, statistics: Statistics, eps: float) -> Tensor:
    """`norm_pool` by kernels, with the given statistics."""
    y: Tensor = _NormPool.apply(x, weight, bias, statistics, eps)
    return y


class _NormPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, statistics: Statistics, eps: float) -> Tensor:
        mean, variance, of_batch, group = statistics
        n, channels, height, width = x.shape
        shape = (n, channels, (height + 1) // 2, (width + 1) // 2)
        y = torch.empty(shape, device=x.device, dtype=x.dtype, memory_format=torch.channels_last)
        winners = torch.empty_like(y, dtype=torch.int8)
        windows = Rows.of(y, MAPPED // 4)
        arguments = (mean, variance, weight, bias, *windows.size, height, width, eps)
        _norm_pool_forward[windows.grid](x, y, winners, *arguments, **windows.constants())
        ctx.save_for_backward(x, weight, bias, mean, variance, winners)
        ctx.settings = of_batch, group, eps
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, variance, winners = ctx.saved_tensors
        of_batch, group, eps = ctx.settings
        upstream, gradient = channels_last(upstream), torch.empty_like(x)
        quads = Rows.of(upstream, MAPPED // 4)
        parts = quads.parts(x.device)
        arguments = (mean, variance, weight, bias, *quads.size, *x.shape[2:], eps)
        _norm_pool_reduce[quads.walk](upstream, winners, x, parts, *arguments, **quads.constants())
        sums, taken_back, shares = summed(parts, group)
        _norm_pool_backward[quads.grid](
            upstream, winners, x, gradient, taken_back, shares, *arguments, OF_BATCH=of_batch, **quads.constants()
        )
        return gradient, sums[1].to(weight.dtype), sums[0].to(bias.dtype), None, None


@triton.jit(do_not_specialize=["count", "C", "H", "W"])
def _norm_pool_forward(
    x,
    y,
    winners,
    mean,
    variance,
    weight,
    bias,
    count,
    C,
    H,
    W,
    eps,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    UNIT: tl.constexpr,
):
    C = C * UNIT
    channel = channels_of_program(CHANNELS)
    window, n, i, j, exists = _windows_of(tl.program_id(0), channel, count, C, H, W, ROWS)
    centre, sharpness, scale, shift = affine_of(channel, mean, variance, weight, bias, C, eps)
    best = tl.full((ROWS, CHANNELS), float("-inf"), tl.float32)
    winner = tl.full((ROWS, CHANNELS), NO_WINNER, tl.int32)
    for pixel in tl.static_range(9):
        place, inside = _pixel(n, 2 * i - 1 + pixel // 3, 2 * j - 1 + pixel % 3, channel, exists, C, H, W)
        value = (tl.load(x + place, inside, other=0).to(tl.float32) - centre) * (sharpness * scale) + shift
        better = inside & ((value > best) | (value != value))
        best, winner = tl.where(better, value, best), tl.where(better, pixel, winner)
    place = window * C + channel
    tl.store(y + place, rectified(best, best).to(y.dtype.element_ty), exists)
    tl.store(winners + place, tl.where(best <= 0, NO_WINNER, winner).to(tl.int8), exists)


@triton.jit(do_not_specialize=["count", "C", "H", "W"])
def _norm_pool_reduce(
    upstream,
    winners,
    x,
    parts,
    mean,
    variance,
    weight,
    bias,
    count,
    C,
    H,
    W,
    eps,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    UNIT: tl.constexpr,
):
    """The gradients of bias and weight: Σ g and Σ g · x̂."""
    C = C * UNIT
    channel = channels_of_program(CHANNELS)
    centre, sharpness, _, _ = affine_of(channel, mean, variance, weight, bias, C, eps)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    product = tl.zeros((ROWS, CHANNELS), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
        quad, n, i, j, exists = _windows_of(tile, channel, count, C, H, W, ROWS)
        won = _won(upstream, winners, quad, i, j, channel, exists, C, H, W)
        for pixel in tl.static_range(4):
            place, inside = _pixel(n, 2 * i + pixel // 2, 2 * j + pixel % 2, channel, exists, C, H, W)
            total += won[pixel]
            product += won[pixel] * (tl.load(x + place, inside, other=0).to(tl.float32) - centre) * sharpness
    total, product = tl.sum(total, axis=0, keep_dims=True), tl.sum(product, axis=0, keep_dims=True)
    store_parts(parts, channel, total, product, C)


@triton.jit(do_not_specialize=["count", "C", "H", "W"])
def _norm_pool_backward(
    upstream,
    winners,
    x,
    out,
    sums,
    shares,
    mean,
    variance,
    weight,
    bias,
    count,
    C,
    H,
    W,
    eps,
    OF_BATCH: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    UNIT: tl.constexpr,
):
    """The gradient of x: g, less the terms of the batch's mean and variance."""
    C = C * UNIT
    channel = channels_of_program(CHANNELS)
    quad, n, i, j, exists = _windows_of(tl.num_programs(0) - 1 - tl.program_id(0), channel, count, C, H, W, ROWS)
    centre, sharpness, scale, _ = affine_of(channel, mean, variance, weight, bias, C, eps)
    won = _won(upstream, winners, quad, i, j, channel, exists, C, H, W)
    pixels = count // (((H + 1) // 2) * ((W + 1) // 2)) * H * W
    mean_won, mean_product = mean_of(sums, channel, pixels, shares, C), mean_of(sums + C, channel, pixels, shares, C)
    for pixel in tl.static_range(4):
        place, inside = _pixel(n, 2 * i + pixel // 2, 2 * j + pixel % 2, channel, exists, C, H, W)
        gradient = won[pixel]
        if OF_BATCH:
            normalised = (tl.load(x + place, inside, other=0).to(tl.float32) - centre) * sharpness
            gradient -= mean_won + normalised * mean_product
        tl.store(out + place, (gradient * (sharpness * scale)).to(out.dtype.element_ty), inside)


@triton.jit
def _windows_of(tile, channel, count, C, H, W, ROWS: tl.constexpr):
    """The windows of a tile: index, image, row and column, and which of their channels exist."""
    h, w = (H + 1) // 2, (W + 1) // 2
    window = tile * ROWS + tl.arange(0, ROWS)[:, None]
    row = window // w
    return window.to(tl.int64), (row // h).to(tl.int64), row % h, window % w, (window < count) & (channel < C)


@triton.jit
def _pixel(n, row, column, channel, exists, C, H, W):
    """The index of a pixel of an image, and whether it is inside."""
    inside = exists & (row >= 0) & (row < H) & (column >= 0) & (column < W)
    return ((n * H + row) * W + column) * C + channel, inside


@triton.jit
def _won(upstream, winners, quad, i, j, channel, exists, C, H, W):
    """The gradients of a quad's four pixels, row by row."""
    w = (W + 1) // 2
    right, below = exists & (j + 1 < w), exists & (i + 1 < (H + 1) // 2)
    here, winner = _sent(upstream, winners, quad, channel, exists, C)
    there, winner_right = _sent(upstream, winners, quad + 1, channel, right, C)
    under, winner_below = _sent(upstream, winners, quad + w, channel, below, C)
    corner, winner_corner = _sent(upstream, winners, quad + w + 1, channel, right & below, C)
    first = tl.where(winner == 4, here, 0)
    second = tl.where(winner == 5, here, 0) + tl.where(winner_right == 3, there, 0)
    third = tl.where(winner == 7, here, 0) + tl.where(winner_below == 1, under, 0)
    fourth = tl.where(winner == 8, here, 0) + tl.where(winner_right == 6, there, 0)
    fourth += tl.where(winner_below == 2, under, 0) + tl.where(winner_corner == 0, corner, 0)
    return first, second, third, fourth


@triton.jit
def _sent(upstream, winners, window, channel, exists, C):
    """A window's gradient, and the index of the pixel that receives it."""
    place = window * C + channel
    return tl.load(upstream + place, exists, other=0).to(tl.float32), tl.load(winners + place, exists, other=NO_WINNER)
