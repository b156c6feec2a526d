"""The paper's perturbation of images, T^G ∘ T^P; as a kernel in one pass, which changes colours while it samples.

Shapes: N images of H×W pixels.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

import torch
from torch import Tensor

from oneway.draws import Photometric
from oneway.ops.backend import kernel_takes, tl, triton
from oneway.ops.photometric import photometric
from oneway.ops.warp import Warp, neighbours, source_of, warp, wholly_inside

PIXELS = 256
"""Pixels of a program."""


def phtps(x: Tensor, colours: Photometric | None, by: Warp | None) -> Tensor:
    """Change the colours of N×3×H×W images, then warp them; either may be None."""
    if colours is None and by is None:
        return x
    if kernel_takes(x) and not x.requires_grad:
        return phtps_by_kernel(x, colours, by)
    x = x if colours is None else photometric(x, colours)
    return x if by is None else warp(x, by.points)


def phtps_by_kernel(x: Tensor, colours: Photometric | None, by: Warp | None) -> Tensor:
    """`phtps` by a kernel, without a gradient."""
    out = torch.empty_like(x)
    n, _, height, width = x.shape
    # What is absent is never read, but a kernel wants a pointer.
    table, warping = x, (x, x) if by is None else by.arguments()
    if colours is not None:  # N×7: b, s, h, c and π of each image
        columns = (colours.brightness, colours.saturation, colours.hue, colours.contrast, colours.permutation)
        table = torch.column_stack(columns).float()
    constants = {"H": height, "W": width, "COLOURED": colours is not None, "WARPED": by is not None, "PIXELS": PIXELS}
    grid = triton.cdiv(height * width, PIXELS), n
    _perturb[grid](x, out, table, *warping, *x.stride(), *out.stride(), **constants)
    return out


@triton.jit
def _perturb(
    x,
    out,
    colours,
    basis,
    displacements,
    stride_n,
    stride_c,
    stride_y,
    stride_x,
    out_stride_n,
    out_stride_c,
    out_stride_y,
    out_stride_x,
    H: tl.constexpr,
    W: tl.constexpr,
    COLOURED: tl.constexpr,
    WARPED: tl.constexpr,
    PIXELS: tl.constexpr,
):
    n = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    exists = place < H * W
    i, j = place // W, place % W
    image = x + n * stride_n
    colours += n * 7
    if WARPED:
        row, column = source_of(n, i, j, exists, basis, displacements, W)
        above, below, down = neighbours(row, H)
        left, right, across = neighbours(column, W)
        above, below, left, right = above * stride_y, below * stride_y, left * stride_x, right * stride_x
        red_0, green_0, blue_0 = _colour(image + above + left, colours, stride_c, exists, COLOURED)
        red_1, green_1, blue_1 = _colour(image + above + right, colours, stride_c, exists, COLOURED)
        red_2, green_2, blue_2 = _colour(image + below + left, colours, stride_c, exists, COLOURED)
        red_3, green_3, blue_3 = _colour(image + below + right, colours, stride_c, exists, COLOURED)
        inside = wholly_inside(row, column, H, W)
        red = tl.where(inside, _bilinear(red_0, red_1, red_2, red_3, down, across), 0)
        green = tl.where(inside, _bilinear(green_0, green_1, green_2, green_3, down, across), 0)
        blue = tl.where(inside, _bilinear(blue_0, blue_1, blue_2, blue_3, down, across), 0)
    else:
        red, green, blue = _colour(image + i * stride_y + j * stride_x, colours, stride_c, exists, COLOURED)
    target = out + n * out_stride_n + i * out_stride_y + j * out_stride_x
    tl.store(target, red.to(out.dtype.element_ty), exists)
    tl.store(target + out_stride_c, green.to(out.dtype.element_ty), exists)
    tl.store(target + 2 * out_stride_c, blue.to(out.dtype.element_ty), exists)


@triton.jit
def _bilinear(upper, upper_right, lower, lower_right, down, across):
    upper += (upper_right - upper) * across
    lower += (lower_right - lower) * across
    return upper + (lower - upper) * down


@triton.jit
def _colour(pixel, colours, stride_c, exists, COLOURED: tl.constexpr):
    red = tl.load(pixel, exists, other=0).to(tl.float32)
    green = tl.load(pixel + stride_c, exists, other=0).to(tl.float32)
    blue = tl.load(pixel + 2 * stride_c, exists, other=0).to(tl.float32)
    if COLOURED:
        red, green, blue = _photometric(red, green, blue, colours)
    return red, green, blue


@triton.jit
def _photometric(red, green, blue, colours):
    """T^P of a colour, as in `photometric`."""
    brightness, saturation = tl.load(colours), tl.load(colours + 1)
    shift, contrast = tl.load(colours + 2), tl.load(colours + 3)
    red, green, blue = hue_shifted(red + brightness, green + brightness, blue + brightness, shift, saturation)
    red, green, blue = red * contrast, green * contrast, blue * contrast
    first, second, third = tl.load(colours + 4), tl.load(colours + 5), tl.load(colours + 6)
    return _chosen(first, red, green, blue), _chosen(second, red, green, blue), _chosen(third, red, green, blue)


@triton.jit
def hue_shifted(red, green, blue, turns, saturation):
    """Shift the hue of a colour and multiply its saturation, as in `shift_hue`."""
    value = tl.maximum(tl.maximum(red, green), blue)
    chroma = value - tl.minimum(tl.minimum(red, green), blue)
    divisor = tl.where(chroma == 0, 1.0, chroma)
    hue = tl.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor)
    hue = tl.where(value == red, (green - blue) / divisor, hue) + 6 * turns
    chroma *= saturation
    red = value - chroma * _distance_from_peak(hue + 5)
    green = value - chroma * _distance_from_peak(hue + 3)
    blue = value - chroma * _distance_from_peak(hue + 1)
    return red, green, blue


@triton.jit
def _distance_from_peak(angle):
    k = angle - 6 * tl.floor(angle / 6)
    return tl.minimum(tl.maximum(tl.minimum(k, 4 - k), 0.0), 1.0)


@triton.jit
def _chosen(channel, red, green, blue):
    return tl.where(channel == 0, red, tl.where(channel == 1, green, blue))
