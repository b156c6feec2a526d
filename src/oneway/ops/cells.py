"""How kernels of losses divide an image between stride-4 cells and pixels.

Along an axis of `CELLS` cells and `LENGTH` pixels, interval k (0 … CELLS) lies between the centres of cells k − 1
and k, and every pixel's centre lies in one interval: its logits are a mixture of those two cells'. The outermost
intervals have one cell only, which counts as both. A program owns a row of intervals with all of their pixels, so no
pixel is computed twice; what they contribute to each of the four cells around an interval is a number of its own, and a
cell's four numbers are added later. Nothing is added in an order that could change: gradients are deterministic.

Tiles have three axes: the pixels of an interval downwards, intervals, the pixels of an interval to the right.
Neighbouring threads hold neighbouring pixels of a row, and each thread a column of an interval.

Shapes: N images of H×W pixels, C classes, h×w cells.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oneway.ops.backend import kernel_takes, tl, triton

LARGEST_RATIO = 8
"""A thread holds one column of the pixels between two cells, so there cannot be many."""

THREADS = 32
"""Threads of a program in the losses: a power of two, at least 32."""

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
PADDING = tl.constexpr(3)


def kernel_upsamples(logits: Tensor, pixels: tuple[int, int]) -> bool:
    """Whether the kernel of a loss can take N×C×h×w logits to H×W pixels."""
    return (
        logits.ndim == 4
        and kernel_takes(logits)
        and all(c <= p <= LARGEST_RATIO * c for p, c in zip(pixels, logits.shape[2:], strict=True))
    )


@dataclass(frozen=True)
class Shape:
    """The sizes that a loss's kernel is compiled for."""

    classes: int
    cells: tuple[int, int]  # h, w
    pixels: tuple[int, int]  # H, W

    @classmethod
    def of(cls, logits: Tensor, pixels: tuple[int, int]) -> Shape:
        """The sizes of N×C×h×w logits for H×W pixels."""
        return cls(logits.shape[1], (logits.shape[2], logits.shape[3]), pixels)

    @property
    def room(self) -> tuple[int, int]:
        """Room for the pixels of an interval along each axis: powers of two, and four to the right at least.

        Four, because the threads of an interval write the contributions to its four cells.
        """
        down, right = (triton.next_power_of_2(-(-p // c)) for p, c in zip(self.pixels, self.cells, strict=True))
        return down, max(4, right)

    @property
    def intervals(self) -> int:
        """Intervals of a program, all in one row."""
        return max(1, THREADS // self.room[1])

    def grid(self, images: int) -> tuple[int, int, int]:
        """Programs along x, y and the batch."""
        return triton.cdiv(self.cells[1] + 1, self.intervals), self.cells[0] + 1, images

    def constants(self) -> dict[str, int]:
        """The sizes, as kernels name them."""
        (h, w), (height, width), (down, right) = self.cells, self.pixels, self.room
        sizes = {"C": self.classes, "h": h, "w": w, "H": height, "W": width}
        return sizes | {"DOWN": down, "RIGHT": right, "INTERVALS": self.intervals, "num_warps": THREADS // 32}


def pad_logits(logits: Tensor) -> Tensor:
    """Copy logits of any memory layout to N×C×(h + 3)×(w + 3), padded by repeating the border, float32, times log₂ e.

    Cells at the border are repeated once before and twice behind, so that kernels need no bounds checks.
    """
    n, classes, height, width = logits.shape
    padded = torch.empty(n, classes, height + 3, width + 3, device=logits.device)
    grid = (triton.cdiv(width + 3, 32), height + 3, n)
    _pad_logits[grid](logits, padded, *logits.stride(), classes, height, width, CLASSES=32, COLUMNS=32)
    return padded


@triton.jit
def _pad_logits(
    logits, padded, stride_n, stride_c, stride_y, stride_x, C, h, w, CLASSES: tl.constexpr, COLUMNS: tl.constexpr
):
    n, row = tl.program_id(2).to(tl.int64), tl.program_id(1)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    y = tl.minimum(tl.maximum(row - 1, 0), h - 1)
    x = tl.minimum(tl.maximum(column - 1, 0), w - 1)
    for first in range(0, C, CLASSES):
        c = first + tl.arange(0, CLASSES)[:, None]
        exists = (c < C) & (column < w + PADDING)
        value = tl.load(logits + n * stride_n + c * stride_c + y * stride_y + x * stride_x, exists, other=0)
        place = ((n * C + c) * (h + PADDING) + row) * (w + PADDING) + column
        tl.store(padded + place, value.to(tl.float32) * LOG2_E, exists)


@triton.jit
def interval_of(pixel, LENGTH, CELLS):
    """The interval that a pixel's centre lies in: integers only, so that no pixel is lost to rounding."""
    return ((2 * pixel + 1) * CELLS + LENGTH) // (2 * LENGTH)


@triton.jit
def share_of_second(pixel, interval, LENGTH, CELLS):
    """The share of the second of its interval's cells in a pixel; the first has the rest."""
    return ((2 * pixel + 1) * CELLS - (2 * interval - 1) * LENGTH).to(tl.float32) / (2 * LENGTH)


@triton.jit
def first_pixel(interval, LENGTH, CELLS):
    """The first pixel whose centre lies in an interval or behind it."""
    return (tl.maximum((2 * interval - 1) * LENGTH - CELLS, 0) + 2 * CELLS - 1) // (2 * CELLS)


@triton.jit
def _pixels_of(interval, offset, LENGTH: tl.constexpr, CELLS: tl.constexpr):
    """The interval's pixels, which of them exist, and their share of the second cell.

    The only cell of an outermost interval is the second of interval 0 and the first of interval `CELLS`.
    """
    pixel = first_pixel(interval, LENGTH, CELLS) + offset
    exists = (pixel < first_pixel(interval + 1, LENGTH, CELLS)) & (pixel < LENGTH)
    share = share_of_second(pixel, interval, LENGTH, CELLS)
    return pixel, exists, tl.where(interval == 0, 1.0, tl.where(interval == CELLS, 0.0, share))


@triton.jit
def intervals_of_program(
    h: tl.constexpr,
    w: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    DOWN: tl.constexpr,
    RIGHT: tl.constexpr,
    INTERVALS: tl.constexpr,
):
    """Image, row and columns of the program's intervals; their pixels' coordinates, existence and shares."""
    n, row = tl.program_id(2).to(tl.int64), tl.program_id(1)
    column = tl.program_id(0) * INTERVALS + tl.arange(0, INTERVALS)[None, :, None]
    y, exists_down, share_down = _pixels_of(row, tl.arange(0, DOWN)[:, None, None], H, h)
    x, exists_right, share_right = _pixels_of(column, tl.arange(0, RIGHT)[None, None, :], W, w)
    return n, row, column, y, x, exists_down & exists_right & (column <= w), share_down, share_right


@triton.jit
def corner_of(padded, n, row, column, C: tl.constexpr, h: tl.constexpr, w: tl.constexpr, RIGHT: tl.constexpr):
    """Pointers at the upper left cells of intervals in a padded copy, for the first class and for every thread.

    The image may be another for each pixel.
    """
    place = (n * C * (h + PADDING) + row) * (w + PADDING) + tl.minimum(column, w)
    return padded + (place + tl.zeros((1, 1, RIGHT), tl.int64))


@triton.jit
def upsampled(corner, share_down, share_right, w: tl.constexpr):
    """Logits of pixels between four cells of a padded copy, of which `corner` points at the upper left one."""
    upper, upper_right = tl.load(corner), tl.load(corner + 1)
    lower, lower_right = tl.load(corner + w + PADDING), tl.load(corner + w + PADDING + 1)
    upper += (upper_right - upper) * share_right
    lower += (lower_right - lower) * share_right
    return upper + (lower - upper) * share_down


@triton.jit
def maximum_and_log_sum_exp(corner, share_down, share_right, C: tl.constexpr, h: tl.constexpr, w: tl.constexpr):
    """The largest logit, and log₂ Σ 2^logit over the classes, for each pixel."""
    total = tl.zeros_like(share_down) + tl.zeros_like(share_right)
    highest = total - float("inf")
    for _ in range(C):
        logits = upsampled(corner, share_down, share_right, w)
        rise = logits - highest
        change = tl.exp2(-tl.abs(rise))  # of what there is if the maximum rises, of the new term otherwise
        total = tl.where(rise > 0, total * change + 1, total + change)
        highest = tl.maximum(highest, logits)
        corner += (h + PADDING) * (w + PADDING)
    return highest, highest + tl.log2(total)


@triton.jit
def log_sum_exp(corner, share_down, share_right, C: tl.constexpr, h: tl.constexpr, w: tl.constexpr):
    """log₂ Σ 2^logit over the classes, for each pixel."""
    _, normaliser = maximum_and_log_sum_exp(corner, share_down, share_right, C, h, w)
    return normaliser
