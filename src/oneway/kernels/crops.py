"""Crops sampled from one long row of pixels, in one pass.

Arguments mean what they mean in `jitter`: N images of their own sizes begin at `start` in the row, and the rows and
columns of their crops lie at `y` and `x`, with the centre of pixel (0, 0) at (½, ½).
Shapes: N crops of h×w pixels.
"""

# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from oneway.data.dataset import IGNORE

PIXELS = 256
"""Pixels of a program."""


def fused_crops(
    pixels: Tensor, start: Tensor, height: Tensor, width: Tensor, y: Tensor, x: Tensor, padding: float
) -> Tensor:
    """N×3×h×w float32 in [0, 1], channels last: P×3 uint8 pixels interpolated bilinearly, `padding` outside."""
    (n, h), w = y.shape, x.shape[1]
    out = torch.empty(n, h, w, 3, device=pixels.device)
    window = (tensor.contiguous() for tensor in (start, height, width, y, x))
    _crop_colours[_grid(n, h, w)](pixels, *window, out, h, w, PADDING=padding, PIXELS=PIXELS)
    return out.permute(0, 3, 1, 2)


def fused_label_crops(labels: Tensor, start: Tensor, height: Tensor, width: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """N×h×w int64: the P uint8 labels of the pixels that places fall into, IGNORE outside the image."""
    (n, h), w = y.shape, x.shape[1]
    out = torch.empty(n, h, w, device=labels.device, dtype=torch.int64)
    window = (tensor.contiguous() for tensor in (start, height, width, y, x))
    _crop_labels[_grid(n, h, w)](labels, *window, out, h, w, IGNORED=IGNORE, PIXELS=PIXELS)
    return out


def _grid(n: int, h: int, w: int) -> tuple[int, int]:
    return triton.cdiv(h * w, PIXELS), n


@triton.jit
def _crop_colours(pixels, start, height, width, y, x, out, h, w, PADDING: tl.constexpr, PIXELS: tl.constexpr):
    n, place = tl.program_id(1).to(tl.int64), tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    exists = place < h * w
    row, column, inside = _place(n, place, exists, height, width, y, x, h, w)
    first, tall, wide = tl.load(start + n), tl.load(height + n), tl.load(width + n)
    top, bottom, down = _neighbours(row, tall)
    left, right, across = _neighbours(column, wide)
    upper_left, upper_right = pixels + (first + top * wide + left) * 3, pixels + (first + top * wide + right) * 3
    lower_left, lower_right = pixels + (first + bottom * wide + left) * 3, pixels + (first + bottom * wide + right) * 3
    target = out + (n * h * w + place) * 3
    for channel in tl.static_range(3):
        upper = _between(upper_left + channel, upper_right + channel, across, exists)
        lower = _between(lower_left + channel, lower_right + channel, across, exists)
        value = (upper + (lower - upper) * down) / 255
        tl.store(target + channel, tl.where(inside, value, PADDING), exists)


@triton.jit
def _crop_labels(labels, start, height, width, y, x, out, h, w, IGNORED: tl.constexpr, PIXELS: tl.constexpr):
    n, place = tl.program_id(1).to(tl.int64), tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    exists = place < h * w
    row, column, inside = _place(n, place, exists, height, width, y, x, h, w)
    i, j = _clamped(tl.floor(row), tl.load(height + n)), _clamped(tl.floor(column), tl.load(width + n))
    nearest = tl.load(labels + tl.load(start + n) + i * tl.load(width + n) + j, exists, other=IGNORED)
    tl.store(out + n * h * w + place, tl.where(inside, nearest.to(tl.int64), IGNORED), exists)


@triton.jit
def _place(n, place, exists, height, width, y, x, h, w):
    """Where the crop's pixels lie in their image, and whether it covers them."""
    row, column = tl.load(y + n * h + place // w, exists, other=0), tl.load(x + n * w + place % w, exists, other=0)
    inside = (row >= 0) & (row <= tl.load(height + n)) & (column >= 0) & (column <= tl.load(width + n))
    return row, column, inside


@triton.jit
def _neighbours(place, length):
    """The pixels whose centres lie before and after a place, and how far it is from the first to the second."""
    place = place.to(tl.float32) - 0.5
    before = tl.floor(place)
    return _clamped(before, length), _clamped(before + 1, length), place - before


@triton.jit
def _clamped(pixel, length):
    return tl.minimum(tl.maximum(pixel.to(tl.int64), 0), length - 1)


@triton.jit
def _between(left, right, across, exists):
    at_left = tl.load(left, exists, other=0).to(tl.float32)
    return at_left + (tl.load(right, exists, other=0).to(tl.float32) - at_left) * across
