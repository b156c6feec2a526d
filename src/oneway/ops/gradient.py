"""The partial sums that a loss's kernel writes, and how they become a mean and its gradient.

A loss is a scalar, so its gradient is known up to a factor as soon as its pixels have been seen: the forward pass
writes it down, and the backward pass only adds up and scales.

Shapes: N images of H×W pixels, C classes, h×w cells.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from oneway.ops.backend import tl, triton
from oneway.ops.cells import Shape
from oneway.ops.collective import total


class PartialSums(NamedTuple):
    """The output of a loss's kernel."""

    contributions: Tensor  # N×C×2(h + 1)×2(w + 1): 2×2 numbers for each interval, one for each cell around it
    sums: Tensor  # 2×programs, the loss and the number of the pixels that count

    @classmethod
    def empty(cls, images: int, shape: Shape, device: torch.device) -> PartialSums:
        """Uninitialised memory for a kernel to write."""
        rows, columns = shape.cells[0] + 1, shape.cells[1] + 1
        return cls(
            torch.empty(images, shape.classes, 2 * rows, 2 * columns, device=device),
            torch.empty(2, math.prod(shape.grid(images)), device=device),
        )


def mean_loss(logits: Tensor, partial_sums: PartialSums) -> Tensor:
    """The mean loss over the pixels that count, 0 where none does, with its gradient with respect to the logits."""
    loss: Tensor = _MeanLoss.apply(logits, *partial_sums)
    return loss


class _MeanLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, contributions: Tensor, sums: Tensor) -> Tensor:
        loss, count = sums.sum(dim=1)
        count = total(count).clamp(min=1)
        ctx.save_for_backward(contributions, count)
        channels_last = logits.stride(1) == 1
        ctx.form = logits.dtype, torch.channels_last if channels_last else torch.contiguous_format
        return loss / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        contributions, count = ctx.saved_tensors
        dtype, memory_format = ctx.form
        return _merged(contributions, upstream / count, dtype, memory_format), None, None


def _merged(contributions: Tensor, scale: Tensor, dtype: torch.dtype, memory_format: torch.memory_format) -> Tensor:
    """N×C×h×w: what all intervals contribute to each cell, times a scalar."""
    n, classes, rows, columns = contributions.shape
    shape = (n, classes, rows // 2 - 1, columns // 2 - 1)
    out = torch.empty(shape, device=contributions.device, dtype=dtype, memory_format=memory_format)
    grid = (triton.cdiv(shape[3], 32), shape[2], n)
    _merge[grid](contributions, scale, out, *out.stride(), *shape[1:], CLASSES=32, COLUMNS=32)
    return out


@triton.jit
def _merge(
    contributions,
    scale,
    out,
    stride_n,
    stride_c,
    stride_y,
    stride_x,
    C,
    h,
    w,
    CLASSES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Cell (y, x) adds up the last numbers of intervals y and x and the first of intervals y + 1 and x + 1."""
    n, y = tl.program_id(2).to(tl.int64), tl.program_id(1)
    x = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    factor = tl.load(scale)
    pitch = 2 * (w + 1)
    for first in range(0, C, CLASSES):
        c = first + tl.arange(0, CLASSES)[:, None]
        exists = (c < C) & (x < w)
        place = contributions + ((n * C + c) * 2 * (h + 1) + 2 * y + 1) * pitch + 2 * x + 1
        total = tl.load(place, exists, other=0) + tl.load(place + 1, exists, other=0)
        total += tl.load(place + pitch, exists, other=0) + tl.load(place + pitch + 1, exists, other=0)
        target = out + n * stride_n + c * stride_c + y * stride_y + x * stride_x
        tl.store(target, (total * factor).to(out.dtype.element_ty), exists)


@triton.jit
def store_contributions(contributions, gradient, share_down, share_right, column, w: tl.constexpr, RIGHT: tl.constexpr):
    """Write what the pixels of intervals contribute to the four cells around them, for one class and one row."""
    lower = tl.sum(gradient * share_down, axis=0, keep_dims=True)
    upper = tl.sum(gradient * (1 - share_down), axis=0, keep_dims=True)
    upper_left = tl.sum(upper * (1 - share_right), axis=2, keep_dims=True)
    upper_right = tl.sum(upper * share_right, axis=2, keep_dims=True)
    lower_left = tl.sum(lower * (1 - share_right), axis=2, keep_dims=True)
    lower_right = tl.sum(lower * share_right, axis=2, keep_dims=True)
    # The first four threads of an interval write one number each, so that values need not move between threads.
    cell = tl.arange(0, RIGHT)[None, None, :]
    down, right = cell // 2, cell % 2
    left_value, right_value = tl.where(down == 0, upper_left, lower_left), tl.where(down == 0, upper_right, lower_right)
    place = contributions + down * (2 * (w + 1)) + 2 * column + right
    tl.store(place, tl.where(right == 0, left_value, right_value), (cell < 4) & (column <= w))


@triton.jit
def store_sums(sums, loss, counted):
    """Write the program's share of the loss and of the pixels that count."""
    programs = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)
    program = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    tl.store(sums + program, tl.sum(loss))
    tl.store(sums + programs + program, tl.sum(counted.to(tl.float32)))
