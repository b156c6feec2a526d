"""Bilinear interpolation fused with the sum after it, as in a decoder: one pass forwards, one pass backwards.

A pixel of y is a mixture of the cells of x around it, with weights as in `cells`: quotients of whole numbers, which
stay exact for large sizes. Backwards, a cell gathers the gradients of the pixels that it contributes to. These lie in a
window around it, which is traversed in a fixed order: gradients are deterministic.

A program computes neighbours in one row of one image, so that most of the index arithmetic is done once for all.

Shapes: N×C×h×w cells and N×C×H×W pixels, both in channels-last layout.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from oneway.ops.backend import kernel_takes, tl, triton
from oneway.ops.cells import first_pixel, interval_of, share_of_second
from oneway.ops.rows import Rows, channels_last

READ = 16384
"""Bytes that a program reads at a time: four cells for each pixel of its tile, or a window's row for each cell."""
WINDOWS = (4, 16)
"""The least and the largest number of columns of a window that are read at a time: powers of two."""


def resize(x: Tensor, size: tuple[int, int], addend: Tensor | None = None) -> Tensor:
    """Bilinear interpolation between pixel centres to H×W, plus a tensor of that shape."""
    if kernel_resizes(x, size, addend):
        return resize_by_kernel(x, size, addend)
    # Autocast would take it to single precision, and with it every sum and norm that follows.
    with torch.autocast(x.device.type, enabled=False):
        y = F.interpolate(x, size, mode="bilinear", align_corners=False)
    return y if addend is None else y + addend


def kernel_resizes(x: Tensor, size: tuple[int, int], addend: Tensor | None = None) -> bool:
    """Whether the kernels can take a tensor, a size and an addend."""
    return (
        x.ndim == 4
        and x.numel() > 0
        and kernel_takes(x)
        and x.is_contiguous(memory_format=torch.channels_last)
        and (addend is None or (addend.dtype == x.dtype and addend.shape == (*x.shape[:2], *size)))
    )


def resize_by_kernel(x: Tensor, size: tuple[int, int], addend: Tensor | None = None) -> Tensor:
    """`resize` by kernels."""
    y: Tensor = _Resize.apply(x, size, addend)
    return y


class _Resize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, size: tuple[int, int], addend: Tensor | None) -> Tensor:
        n, channels, *cells = x.shape
        y = torch.empty(n, channels, *size, device=x.device, dtype=x.dtype, memory_format=torch.channels_last)
        tile = _tile(y, reads=4)
        added = y if addend is None else channels_last(addend)
        grid = triton.cdiv(size[1], tile["COLUMNS"]), size[0], n
        _resize_forward[grid](x, added, y, channels, *cells, *size, ADDEND=addend is not None, **tile)
        ctx.shape, ctx.with_addend = x.shape, addend is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, Tensor | None]:
        n, channels, h, w = ctx.shape
        height, width = upstream.shape[2:]
        gradient = torch.empty(
            ctx.shape, device=upstream.device, dtype=upstream.dtype, memory_format=torch.channels_last
        )
        reach = min(width, -(-2 * width // w))  # a cell has a share in the pixels less than a cell away
        window = min(max(WINDOWS[0], triton.next_power_of_2(reach)), WINDOWS[1])
        tile = _tile(gradient, reads=window)
        _resize_backward[triton.cdiv(w, tile["COLUMNS"]), h, n](
            channels_last(upstream), gradient, channels, h, w, height, width, reach, WINDOW=window, **tile
        )
        return gradient, None, upstream if ctx.with_addend else None


def _tile(x: Tensor, reads: int) -> dict[str, int]:
    """The tile of a program, in columns and channels, if each number needs so many reads."""
    columns, channels = Rows.of(x, READ // (reads * x.element_size())).tile
    return {"COLUMNS": min(columns, triton.next_power_of_2(x.shape[3])), "CHANNELS": channels}


@triton.jit(do_not_specialize=["h", "w", "H", "W"])
def _resize_forward(x, addend, y, C, h, w, H, W, ADDEND: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr):
    row = tl.program_id(1)
    n = (tl.num_programs(2) - 1 - tl.program_id(2)).to(tl.int64)  # the addend's last images are still in the cache
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    above, below, share_down = cells_around(row, H, h)
    left, right, share_right = cells_around(column, W, w)
    above, below = x + (n * h + above) * w * C, x + (n * h + below) * w * C
    start = (n * H + row) * W * C
    for first in range(0, C, CHANNELS):
        channel = first + tl.arange(0, CHANNELS)[None, :]
        exists = (column < W) & (channel < C)
        place = column * C + channel
        upper = mixture(above, left * C + channel, right * C + channel, share_right, exists)
        lower = mixture(below, left * C + channel, right * C + channel, share_right, exists)
        value = upper + (lower - upper) * share_down
        if ADDEND:
            value += tl.load(addend + start + place, exists, other=0).to(tl.float32)
        tl.store(y + start + place, value.to(y.dtype.element_ty), exists)


@triton.jit(do_not_specialize=["h", "w", "H", "W", "reach"])
def _resize_backward(
    upstream, out, C, h, w, H, W, reach, WINDOW: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr
):
    """The gradient of x."""
    n, i = tl.program_id(2).to(tl.int64), tl.program_id(1)
    j = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    top, bottom, left = first_pixel(i, H, h), tl.minimum(first_pixel(i + 2, H, h), H), first_pixel(j, W, w)
    for first in range(0, C, CHANNELS):
        channel = first + tl.arange(0, CHANNELS)[None, :]
        exists = (j < w) & (channel < C)
        total = tl.zeros((COLUMNS, CHANNELS), tl.float32)
        for across in range(0, reach, WINDOW):
            for row in range(top, bottom):
                share_down = _share(i, row, H, h)
                sent = upstream + (n * H + row) * W * C
                for offset in tl.static_range(WINDOW):
                    column = left + across + offset
                    share = share_down * _share(j, column, W, w)
                    place = column * C + channel
                    total += share * tl.load(sent + place, exists & (share > 0), other=0).to(tl.float32)
        tl.store(out + (n * h + i) * w * C + (j * C + channel), total.to(out.dtype.element_ty), exists)


@triton.jit
def cells_around(pixel, LENGTH, CELLS):
    """The two cells that a pixel lies between, equal at the border, and the weight of the second."""
    interval = interval_of(pixel, LENGTH, CELLS)
    share = share_of_second(pixel, interval, LENGTH, CELLS)
    return tl.maximum(interval - 1, 0), tl.minimum(interval, CELLS - 1), share


@triton.jit
def mixture(row, first, second, share, exists):
    """Interpolate between two elements of a row, in single precision."""
    value = tl.load(row + first, exists, other=0).to(tl.float32)
    return value + (tl.load(row + second, exists, other=0).to(tl.float32) - value) * share


@triton.jit
def _share(cell, pixel, LENGTH, CELLS):
    """The weight of a cell in a pixel along an axis; 0 unless the pixel lies next to the cell."""
    of_second = tl.where(cell == 0, 1.0, share_of_second(pixel, cell, LENGTH, CELLS))
    of_first = tl.where(cell == CELLS - 1, 1.0, 1 - share_of_second(pixel, cell + 1, LENGTH, CELLS))
    return tl.where(pixel < LENGTH, tl.maximum(tl.minimum(of_second, of_first), 0), 0)
