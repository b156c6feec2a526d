"""Depthwise convolution, 3×3 at stride 1 or 2, 5×5 at stride 2: bound by memory bandwidth.

PyTorch's own kernels for these are far from the memory bandwidth in channels-last layout, so ours run wherever they
can. A program computes a tile of a few rows and columns, and reads a row of x once for all rows of y that use it.
Backwards at stride 1, the gradient of x is a convolution with the flipped kernel; at stride 2, a program computes quads
of 2×2 pixels, and each pixel of a quad uses its own quarter of the taps. The gradient of the weights is summed in two
steps, in a fixed order. Weights stay in single precision throughout.

Shapes: N×C×H×W pixels and N×C×h×w outputs, both in channels-last layout; K×K taps; P parts.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803, RUF005 (what a kernel is compiled for is upper case, shapes are letters, and its tuples know no stars)

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from oneway.ops.backend import kernel_takes, tl, triton
from oneway.ops.rows import channels_last

# 5×5 at stride 1 is cuDNN's: on an H200, 16 images in bfloat16, all three passes together take it 0.67 to 0.75
# of the time of our kernels with 480 to 1152 channels on 22² and 11², and 0.96 with 240 on 44². At 3×3 and at stride 2
# ours take 0.48 to 0.93 of its time on large maps, and 1.02 on small ones, where both take next to none.
WINDOWS = ((3, 1), (3, 2), (5, 2))
"""Kernel sizes and strides for which our kernels are faster than cuDNN's."""
TALL = tl.constexpr(4)
"""Rows of a program's tile."""
PROGRAMS = 1024
"""Programs that sum the gradient of the weights, if there are rows enough: several for each multiprocessor."""
MERGED_PARTS, MERGED_CHANNELS = 64, 32


class Window(NamedTuple):
    """The geometry of a convolution: output (i, j) begins at pixel (stride·i − top, stride·j − left)."""

    size: int  # K
    stride: int
    top: int
    left: int
    height: int  # h
    width: int  # w


def depthwise(x: Tensor, layer: nn.Conv2d, same: bool = False) -> Tensor:
    """A depthwise layer's convolution of x.

    Args:
        x: N×C×H×W.
        layer: Its padding is on both sides, unless `same`.
        same: Pad as TensorFlow does: by what gives ⌈H/stride⌉ rows, the larger half behind.
    """
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))  # as a convolution would
    if kernel_convolves(x, layer):
        return depthwise_by_kernel(x, layer.weight, window_of(x, layer, same))
    return convolve(x, layer, same)


def convolve(x: Tensor, layer: nn.Conv2d, same: bool) -> Tensor:
    """The layer's convolution of x in plain PyTorch."""
    if not same:
        return nn.Conv2d.forward(layer, x)
    before_after = [part for axis in (1, 0) for part in _same(x.shape[2 + axis], layer, axis)]
    return F.conv2d(F.pad(x, before_after), layer.weight, layer.bias, layer.stride, 0, layer.dilation, layer.groups)


def kernel_convolves(x: Tensor, layer: nn.Conv2d) -> bool:
    """Whether the kernels can take a tensor and a layer, and are faster than cuDNN."""
    size, stride = layer.kernel_size[0], layer.stride[0]
    return (
        layer.kernel_size == (size, size)
        and layer.stride == (stride, stride)
        and (size, stride) in WINDOWS
        and layer.dilation == (1, 1)
        and layer.groups == layer.in_channels == layer.out_channels
        and layer.bias is None
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and max(layer.padding) < size
        and x.ndim == 4
        and x.numel() > 0
        and x[0].numel() < 2**31  # places in an image are counted in 32 bits
        and min(x.shape[2:]) >= size  # else a window may have no pixel at all
        and kernel_takes(x, layer.weight)
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def window_of(x: Tensor, layer: nn.Conv2d, same: bool = False) -> Window:
    """The window of a layer over x."""
    size, stride = layer.kernel_size[0], layer.stride[0]
    padding = [_same(x.shape[2 + axis], layer, axis) if same else (int(layer.padding[axis]),) * 2 for axis in (0, 1)]
    height, width = (
        (pixels + sum(pads) - size) // stride + 1 for pixels, pads in zip(x.shape[2:], padding, strict=True)
    )
    return Window(size, stride, padding[0][0], padding[1][0], height, width)


def _same(pixels: int, layer: nn.Conv2d, axis: int) -> tuple[int, int]:
    stride, reach = layer.stride[axis], (layer.kernel_size[axis] - 1) * layer.dilation[axis] + 1
    total = max((-(-pixels // stride) - 1) * stride + reach - pixels, 0)
    return total // 2, total - total // 2


def depthwise_by_kernel(x: Tensor, weight: Tensor, window: Window) -> Tensor:
    """`depthwise` by kernels, with C×1×K×K weights."""
    y: Tensor = _Depthwise.apply(x, weight, window)
    return y


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, window: Window) -> Tensor:
        taps = torch.empty(window.size**2, x.shape[1], device=x.device)  # a row of channels for each tap
        taps.copy_(weight.detach().flatten(1).t())
        ctx.save_for_backward(x, weight, taps)
        ctx.window = window
        shape = (*x.shape[:2], window.height, window.width)
        y = torch.empty(shape, device=x.device, dtype=x.dtype, memory_format=torch.channels_last)
        return _convolved(x, taps, y, window)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, taps = ctx.saved_tensors
        upstream, of_x, of_weight = channels_last(upstream), None, None
        if ctx.needs_input_grad[0]:
            of_x = _gradient_of_x(upstream, taps, torch.empty_like(x), ctx.window)
        if ctx.needs_input_grad[1]:
            of_weight = _gradient_of_weight(x, upstream, ctx.window).to(weight.dtype).view_as(weight)
        return of_x, of_weight, None


def _convolved(x: Tensor, taps: Tensor, y: Tensor, window: Window, turned: bool = False) -> Tensor:
    tile = _tile(y.shape[1], y.shape[3])
    grid = (_across(y, tile), triton.cdiv(y.shape[2], TALL.value), y.shape[0])
    sizes = (*x.shape[2:], *y.shape[2:], x.shape[1], window.top, window.left)
    _depthwise_conv[grid](
        x, taps, y, *sizes, K=window.size, STRIDE=window.stride, TURNED=turned, **_constants(tile, numbers=8)
    )
    return y


def _gradient_of_x(upstream: Tensor, taps: Tensor, out: Tensor, window: Window) -> Tensor:
    if window.stride == 1:
        top, left = window.size - 1 - window.top, window.size - 1 - window.left
        return _convolved(upstream, taps, out, window._replace(top=top, left=left), turned=True)
    rows, columns = ((pixels + 1) // 2 for pixels in out.shape[2:])
    tile = _tile(out.shape[1], columns)
    grid = (triton.cdiv(out.shape[1], tile[1]) * triton.cdiv(columns, tile[0]), rows, out.shape[0])
    sizes = (*out.shape[2:], *upstream.shape[2:], out.shape[1])
    constants = {"K": window.size, "TOP": window.top, "LEFT": window.left, **_constants(tile, numbers=4, registers=128)}
    _depthwise_conv_quads[grid](upstream, taps, out, *sizes, **constants)
    return out


def _gradient_of_weight(x: Tensor, upstream: Tensor, window: Window) -> Tensor:
    n, channels, height, _ = upstream.shape
    tile = (8, 16 if channels <= 16 else 32)
    across = _across(upstream, tile)
    bands = min(triton.cdiv(PROGRAMS, across * n), triton.cdiv(height, 4 * TALL.value))
    band = triton.cdiv(triton.cdiv(height, bands), TALL.value) * TALL.value
    bands = triton.cdiv(height, band)
    count = n * bands * (across // triton.cdiv(channels, tile[1]))
    parts = torch.empty(count, window.size**2, channels, device=x.device)
    sizes = (*x.shape[2:], *upstream.shape[2:], channels, window.top, window.left, band)
    constants = {"K": window.size, "STRIDE": window.stride, **_constants(tile, numbers=2, registers=168)}
    _depthwise_conv_weights[across, bands, n](x, upstream, parts, *sizes, **constants)
    gradient = torch.empty(channels, window.size**2, device=x.device)
    grid = (triton.cdiv(channels, MERGED_CHANNELS), window.size**2)
    _depthwise_conv_merge[grid](parts, gradient, count, channels, PARTS=MERGED_PARTS, CHANNELS=MERGED_CHANNELS)
    return gradient


def _tile(channels: int, width: int) -> tuple[int, int]:
    """Columns and channels of a tile: up to 64 channels, fewer where over a fifth of the tile would be empty."""
    filled = (each for each in (64, 32, 16) if channels >= 0.8 * triton.cdiv(channels, each) * each)
    return 8 if width <= 24 else 16, next(filled, 32)


def _across(y: Tensor, tile: tuple[int, int]) -> int:
    """The number of programs for a row of an image."""
    return int(triton.cdiv(y.shape[3], tile[0]) * triton.cdiv(y.shape[1], tile[1]))


def _constants(tile: tuple[int, int], numbers: int, registers: int | None = None) -> dict[str, int]:
    """Compile-time constants: the tile, the number of warps for so many numbers a thread, and a limit of registers.

    Without the limit, the compiler would hoist many loads and use so many registers that occupancy falls.
    """
    warps = max(1, tile[0] * tile[1] // (32 * numbers))
    limit = {} if registers is None else {"maxnreg": registers}
    return {"WIDE": tile[0], "CHANNELS": tile[1], "num_warps": warps, **limit}


@triton.jit(do_not_specialize=["H", "W", "h", "w", "top", "left"])
def _depthwise_conv(
    x,
    taps,
    y,
    H,
    W,
    h,
    w,
    C,
    top,
    left,
    K: tl.constexpr,
    STRIDE: tl.constexpr,
    TURNED: tl.constexpr,
    WIDE: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    channel, column = _place_of_program(C, WIDE, CHANNELS)
    first, n = tl.program_id(1) * TALL, tl.program_id(2).to(tl.int64)
    x += n * H * W * C
    y += n * h * w * C
    nothing = tl.zeros((WIDE, CHANNELS), tl.float32)
    sums = (nothing, nothing, nothing, nothing)
    for across in range(K):
        j = column * STRIDE - left + across
        for row in tl.static_range((TALL - 1) * STRIDE + K):
            value = _row(x, first * STRIDE - top + row, j, channel, H, W, C)
            for t in tl.static_range(TALL):
                if row - t * STRIDE >= 0 and row - t * STRIDE < K:
                    tap = (row - t * STRIDE) * K + across
                    tap = K * K - 1 - tap if TURNED else tap
                    product = value * tl.load(taps + tap * C + channel, channel < C, other=0)
                    sums = sums[:t] + (sums[t] + product,) + sums[t + 1 :]
    for t in tl.static_range(TALL):
        exists = (column < tl.where(first + t < h, w, 0)) & (channel < C)
        tl.store(y + ((first + t) * w + column) * C + channel, sums[t].to(y.dtype.element_ty), exists)


@triton.jit(do_not_specialize=["H", "W", "h", "w"])
def _depthwise_conv_quads(
    upstream,
    taps,
    out,
    H,
    W,
    h,
    w,
    C,
    K: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    WIDE: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The gradient of x at stride 2: pixel (2a + p, 2b + q) lies under tap (p + top − 2s, …) of output (a + s, …)."""
    channel, b = _place_of_program(C, WIDE, CHANNELS)
    a, n = tl.program_id(1), tl.program_id(2).to(tl.int64)
    upstream += n * h * w * C
    out += n * H * W * C
    nothing = tl.zeros((WIDE, CHANNELS), tl.float32)
    sums = (nothing, nothing, nothing, nothing)
    for s in tl.static_range(-((K - 1 - TOP) // 2), (1 + TOP) // 2 + 1):
        for t in tl.static_range(-((K - 1 - LEFT) // 2), (1 + LEFT) // 2 + 1):
            value = _row(upstream, a + s, b + t, channel, h, w, C)
            for pixel in tl.static_range(4):
                row, across = pixel // 2 + TOP - 2 * s, pixel % 2 + LEFT - 2 * t
                if row >= 0 and row < K and across >= 0 and across < K:
                    product = value * tl.load(taps + (row * K + across) * C + channel, channel < C, other=0)
                    sums = sums[:pixel] + (sums[pixel] + product,) + sums[pixel + 1 :]
    for pixel in tl.static_range(4):
        i, j = 2 * a + pixel // 2, 2 * b + pixel % 2
        exists = (j < tl.where(i < H, W, 0)) & (channel < C)
        tl.store(out + (i * W + j) * C + channel, sums[pixel].to(out.dtype.element_ty), exists)


@triton.jit(do_not_specialize=["H", "W", "h", "w", "top", "left", "band"])
def _depthwise_conv_weights(
    x,
    upstream,
    parts,
    H,
    W,
    h,
    w,
    C,
    top,
    left,
    band,
    K: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDE: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """A program's partial sum of the gradient: over a band of rows, a few columns wide."""
    channel, column = _place_of_program(C, WIDE, CHANNELS)
    begin, n = tl.program_id(1) * band, tl.program_id(2).to(tl.int64)
    x += n * H * W * C
    upstream += n * h * w * C
    sums = (tl.zeros((WIDE, CHANNELS), tl.float32),) * (K * K)
    for first in range(begin, tl.minimum(begin + band, h), TALL):
        sent = (
            _row(upstream, first, column, channel, h, w, C),
            _row(upstream, first + 1, column, channel, h, w, C),
            _row(upstream, first + 2, column, channel, h, w, C),
            _row(upstream, first + 3, column, channel, h, w, C),
        )
        for across in tl.static_range(K):
            for row in tl.static_range((TALL - 1) * STRIDE + K):
                j = column * STRIDE - left + across
                value = _row(x, first * STRIDE - top + row, j, channel, H, W, C)
                for tap in tl.static_range(across, K * K, K):
                    if row >= tap // K and (row - tap // K) % STRIDE == 0 and (row - tap // K) // STRIDE < TALL:
                        product = value * sent[(row - tap // K) // STRIDE]
                        sums = sums[:tap] + (sums[tap] + product,) + sums[tap + 1 :]
    columns = tl.cdiv(w, WIDE)
    part = (n * tl.num_programs(1) + tl.program_id(1)) * columns + tl.program_id(0) // tl.cdiv(C, CHANNELS)
    for tap in tl.static_range(K * K):
        tl.store(parts + (part * K * K + tap) * C + channel, tl.sum(sums[tap], axis=0, keep_dims=True), channel < C)


@triton.jit(do_not_specialize=["count"])
def _depthwise_conv_merge(parts, out, count, C, PARTS: tl.constexpr, CHANNELS: tl.constexpr):
    """Sum the parts of some channels of one tap."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    tap, taps = tl.program_id(1), tl.num_programs(1)
    sums = tl.zeros((PARTS, CHANNELS), tl.float32)
    for first in range(0, count, PARTS):
        part = first + tl.arange(0, PARTS)[:, None]
        sums += tl.load(parts + (part * taps + tap) * C + channel, (part < count) & (channel < C), other=0)
    tl.store(out + channel * taps + tap, tl.sum(sums, axis=0, keep_dims=True), channel < C)


@triton.jit
def _place_of_program(C, WIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """1×CHANNELS channels and WIDE×1 columns of a program; consecutive programs have consecutive channels."""
    blocks = tl.cdiv(C, CHANNELS)
    channel = tl.program_id(0) % blocks * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    return channel, tl.program_id(0) // blocks * WIDE + tl.arange(0, WIDE)[:, None]


@triton.jit
def _row(x, i, j, channel, H, W, C):
    """Load numbers of a row of an image; 0 outside the image."""
    width = tl.where((i >= 0) & (i < H), W, 0)  # a scalar, so that it costs a tile nothing
    inside = (j >= 0) & (j < width) & (channel < C)
    return tl.load(x + (i * W + j) * C + channel, inside, other=0).to(tl.float32)
