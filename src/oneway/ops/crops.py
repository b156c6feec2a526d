"""Sample crops from a flat array of pixels, in which every image has its own size.

Coordinates: an image covers [0, W] × [0, H]; pixel (i, j) has its centre at (j + ½, i + ½).
Shapes: N crops of h×w pixels.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from oneway.common.terms import IGNORE
from oneway.ops.backend import kernels_run, tl, triton

PIXELS = 256
"""Pixels of a program."""


class Window(NamedTuple):
    """The sampling coordinates of N crops in their images."""

    start: Tensor  # N, the images' first pixels in the flat array
    height: Tensor  # N, of the images
    width: Tensor  # N
    y: Tensor  # N×h
    x: Tensor  # N×w

    def places(self, row: Tensor, column: Tensor) -> Tensor:
        """N×h×w indices into the flat array, of the pixels in the given rows (N×h) and columns (N×w)."""
        return (self.start[:, None] + row * self.width[:, None])[:, :, None] + column[:, None, :]

    def inside(self) -> Tensor:
        """N×h×w: whether a crop's pixel is inside the image."""
        rows = (self.y >= 0) & (self.y <= self.height[:, None])
        columns = (self.x >= 0) & (self.x <= self.width[:, None])
        return rows[:, :, None] & columns[:, None, :]


def crop_images(pixels: Tensor, window: Window, padding: float) -> Tensor:
    """Crop images: N×3×h×w in [0, 1] from P×3 uint8 pixels, interpolated bilinearly, `padding` outside the image."""
    if kernels_run(pixels.device):
        return crop_images_by_kernel(pixels, window, padding)
    top, bottom, down = _around(window.y.float(), window.height)
    left, right, across = _around(window.x.float(), window.width)

    def between_columns(row: Tensor) -> Tensor:
        """N×h×w×3."""
        at_left, at_right = (pixels[window.places(row, column)].float() for column in (left, right))
        return torch.lerp(at_left, at_right, across[:, None, :, None])

    crops = torch.lerp(between_columns(top), between_columns(bottom), down[:, :, None, None]) / 255
    return torch.where(window.inside()[..., None], crops, padding).permute(0, 3, 1, 2)


def crop_labels(labels: Tensor, window: Window) -> Tensor:
    """Crop labels: N×h×w int64 from P uint8 labels, of the nearest pixels, IGNORE outside the image."""
    if kernels_run(labels.device):
        return crop_labels_by_kernel(labels, window)
    row, column = _inside(window.y.floor(), window.height), _inside(window.x.floor(), window.width)
    return torch.where(window.inside(), labels[window.places(row, column)], IGNORE).long()


def _around(places: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The pixels before and after a coordinate, and the weight of the second."""
    before = (places - 0.5).floor()
    return _inside(before, length), _inside(before + 1, length), places - 0.5 - before


def _inside(pixel: Tensor, length: Tensor) -> Tensor:
    return pixel.long().clamp(min=0).minimum(length[:, None] - 1)


def crop_images_by_kernel(pixels: Tensor, window: Window, padding: float) -> Tensor:
    """`crop_images` by a kernel: N×3×h×w float32, channels last."""
    out = torch.empty(*window.y.shape, window.x.shape[1], 3, device=pixels.device)
    return _launch(_crop_colours, pixels, window, out, PADDING=padding).permute(0, 3, 1, 2)


def crop_labels_by_kernel(labels: Tensor, window: Window) -> Tensor:
    """`crop_labels` by a kernel: N×h×w int64."""
    out = torch.empty(*window.y.shape, window.x.shape[1], device=labels.device, dtype=torch.int64)
    return _launch(_crop_labels, labels, window, out, IGNORED=IGNORE)


def _launch(kernel: Any, source: Tensor, window: Window, out: Tensor, **constants: float) -> Tensor:
    n, h, w = out.shape[:3]
    places = (tensor.contiguous() for tensor in window)
    kernel[triton.cdiv(h * w, PIXELS), n](source, *places, out, h, w, **constants, PIXELS=PIXELS)
    return out


def window_by_kernel(
    start: Tensor,
    size: Tensor,
    item: Tensor,
    scale: Tensor,
    top: Tensor,
    left: Tensor,
    flip: Tensor,
    crop: tuple[int, int],
    padding: int,
) -> Window:
    """Compute the window of N crops in one launch instead of dozens, the same to the bit.

    Args:
        start: S int64, the first pixel of each image in the flat array.
        size: S×2 int64, height and width of each image.
        item: N, the numbers of the images.
        scale: N.
        top: N, in [0, 1]: where a crop lies between the highest and the lowest possible place.
        left: N, in [0, 1], the same horizontally.
        flip: N, bool.
        crop: Rows and columns.
        padding: Pixels that a crop may reach beyond each border of the scaled image.
    """
    n, device = len(item), size.device
    found = Window(
        *torch.empty(3, n, dtype=torch.int64, device=device),
        *(torch.empty(n, length, device=device) for length in crop),
    )
    columns = (tensor.contiguous() for tensor in (start, size, item, scale, top, left, flip))
    constants = {"LENGTH": triton.next_power_of_2(max(crop)), "enable_fp_fusion": False}  # rounded as PyTorch does it
    _window[n, 2](*columns, *found, *crop, padding, **constants)
    return found


@triton.jit
def _window(
    starts,
    sizes,
    item,
    scale,
    top,
    left,
    flip,
    start,
    height,
    width,
    y,
    x,
    h,
    w,
    padding,
    LENGTH: tl.constexpr,
):
    """Sampling coordinates of a crop: rows by one program, columns by another."""
    n, across = tl.program_id(0), tl.program_id(1) == 1
    image = tl.load(item + n)
    size = tl.load(sizes + 2 * image + tl.program_id(1))
    if across:
        tl.store(width + n, size)
    else:
        tl.store(height + n, size)
        tl.store(start + n, tl.load(starts + image))
    length, cropped = size.to(tl.float32), tl.where(across, w, h)
    factor, fraction = tl.load(scale + n), tl.load(tl.where(across, left, top) + n)
    slack = factor * length + 2 * padding - cropped
    sign = tl.where(slack > 0, 1.0, tl.where(slack < 0, -1.0, 0.0))
    begin = sign * tl.floor(fraction * (tl.floor(tl.abs(slack)) + 1)) - padding
    pixel = tl.arange(0, LENGTH)
    place = tl.math.div_rn(begin + (pixel + 0.5), factor)
    place = tl.where(across & (tl.load(flip + n) != 0), length - place, place)
    tl.store(tl.where(across, x, y) + n * cropped + pixel, place, pixel < cropped)


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
    """The coordinates of the crop's pixels in their image, and whether they are inside it."""
    row, column = tl.load(y + n * h + place // w, exists, other=0), tl.load(x + n * w + place % w, exists, other=0)
    inside = (row >= 0) & (row <= tl.load(height + n)) & (column >= 0) & (column <= tl.load(width + n))
    return row, column, inside


@triton.jit
def _neighbours(place, length):
    """The pixels before and after a coordinate, and the weight of the second."""
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
