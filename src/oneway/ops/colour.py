"""Colour jitter of images: brightness, contrast, saturation, hue; some images grey, some blurred. Per image.

Probabilities are those of the strong augmentation of FixMatch and UniMatch for segmentation; each step is what
torchvision's function of the same name does. As kernels: a pass for the mean grey of each image, one for its colours,
and two for the blur.

Shapes: N images of H×W pixels, RGB in [0, 1] going in and coming out.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oneway.draws import Colours
from oneway.ops.backend import kernel_takes, tl, triton
from oneway.ops.photometric import shift_hue
from oneway.ops.phtps import hue_shifted

PROBABILITIES = (0.8, 0.2, 0.5)
"""Probabilities of a change of colours, of grey, of blur."""
REACH = 5
"""Radius of the blur in pixels."""
GREY = (0.2989, 0.587, 0.114)
"""Shares of red, green and blue in the grey of a colour."""
RED, GREEN, BLUE = (tl.constexpr(share) for share in GREY)
PIXELS = 1024
"""Pixels of a program."""


def jitter_colours(x: Tensor, draw: Colours, strength: float) -> Tensor:
    """N×3×H×W images; at strength 0 the identity but for rounding, and above 1 no more probable than at 1."""
    if kernel_takes(x) and not x.requires_grad and min(x.shape[2:]) > REACH:
        return jitter_colours_by_kernel(x, draw, strength)
    pairs = zip(draw.u.T, PROBABILITIES, strict=True)
    coloured, grey, blurred = ((u < min(1, strength) * probability).view(-1, 1, 1, 1) for u, probability in pairs)
    brightness, contrast, saturation, hue = (
        torch.where(coloured, strength * change.to(x.dtype).view(-1, 1, 1, 1), 0)
        for change in (draw.brightness, draw.contrast, draw.saturation, draw.hue)
    )
    x = (x * (1 + brightness)).clamp(0, 1)
    mean = grey_of(x).mean(dim=(2, 3), keepdim=True)
    x = torch.lerp(mean.expand_as(x), x, 1 + contrast).clamp(0, 1)
    x = torch.lerp(grey_of(x).expand_as(x), x, 1 + saturation).clamp(0, 1)
    x = shift_hue(x, hue)
    x = torch.where(grey, grey_of(x), x)
    return torch.where(blurred, blur(x, draw.blur.to(x.dtype)), x)


def jitter_colours_by_kernel(x: Tensor, draw: Colours, strength: float) -> Tensor:
    """`jitter_colours` by kernels, without a gradient."""
    n, _, height, width = x.shape
    x, u = x.contiguous(), draw.u.contiguous()
    tiles = triton.cdiv(height * width, PIXELS)
    sums, coloured, halfway, out = torch.empty(n, tiles, device=x.device), *(torch.empty_like(x) for _ in range(3))
    likely = [min(1, strength) * probability for probability in PROBABILITIES]
    changes = (draw.brightness, draw.contrast, draw.saturation, draw.hue, u, strength, *likely[:2])
    _jitter_sums[tiles, n](x, sums, draw.brightness, u, strength, likely[0], height * width, PIXELS=PIXELS)
    constants = {"TILES": triton.next_power_of_2(tiles), "PIXELS": PIXELS}
    _jitter_colours[tiles, n](x, coloured, sums, *changes, height * width, tiles, **constants)
    for source, target, down in ((coloured, halfway, True), (halfway, out, False)):
        blurred = (draw.blur, u, likely[2], height, width)
        _jitter_blur[tiles, 3, n](source, target, *blurred, DOWN=down, REACH=REACH, PIXELS=PIXELS)
    return out


def grey_of(x: Tensor) -> Tensor:
    """The grey of N×3×H×W colours: N×1×H×W."""
    red, green, blue = x.split(1, dim=1)
    return GREY[0] * red + GREY[1] * green + GREY[2] * blue


def blur(x: Tensor, deviation: Tensor) -> Tensor:
    """Blur each image with a Gaussian of its own deviation, mirrored at the border."""
    offsets = torch.arange(-REACH, REACH + 1, device=x.device, dtype=x.dtype)
    weights = (-0.5 * (offsets / deviation[:, None]).square()).softmax(dim=1)  # N×11
    for axis, padding in ((2, (0, 0, REACH, REACH)), (3, (REACH, REACH, 0, 0))):
        length, padded = x.shape[axis], F.pad(x, padding, mode="reflect")
        shifted = [padded.narrow(axis, k, length) * weights[:, k].view(-1, 1, 1, 1) for k in range(2 * REACH + 1)]
        x = torch.stack(shifted).sum(dim=0)
    return x


@triton.jit
def _jitter_sums(x, sums, brightness, u, strength, likely, count, PIXELS: tl.constexpr):
    """A program's part of the sum of an image's grey."""
    n, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    pixel = tile * PIXELS + tl.arange(0, PIXELS)
    exists = pixel < count
    red, green, blue = _brightened(x + n * 3 * count + pixel, n, exists, brightness, u, strength, likely, count)
    tl.store(sums + n * tl.num_programs(0) + tile, tl.sum(tl.where(exists, _grey(red, green, blue), 0)))


@triton.jit
def _jitter_colours(
    x,
    out,
    sums,
    brightness,
    contrast,
    saturation,
    hue,
    u,
    strength,
    likely,
    likely_grey,
    count,
    tiles,
    TILES: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """Brightness, contrast, saturation and hue of `jitter_colours`, and grey, in this order."""
    n = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    exists = pixel < count
    red, green, blue = _brightened(x + n * 3 * count + pixel, n, exists, brightness, u, strength, likely, count)
    tile = tl.arange(0, TILES)
    mean = tl.sum(tl.load(sums + n * tiles + tile, tile < tiles, other=0)) / count
    share = 1 + _change(contrast, n, u, strength, likely)
    red, green, blue = _away(red, mean, share), _away(green, mean, share), _away(blue, mean, share)
    share, grey = 1 + _change(saturation, n, u, strength, likely), _grey(red, green, blue)
    red, green, blue = _away(red, grey, share), _away(green, grey, share), _away(blue, grey, share)
    red, green, blue = hue_shifted(red, green, blue, _change(hue, n, u, strength, likely), 1.0)
    colourless, grey = tl.load(u + 3 * n + 1) < likely_grey, _grey(red, green, blue)
    place = out + n * 3 * count + pixel
    tl.store(place, tl.where(colourless, grey, red).to(out.dtype.element_ty), exists)
    tl.store(place + count, tl.where(colourless, grey, green).to(out.dtype.element_ty), exists)
    tl.store(place + 2 * count, tl.where(colourless, grey, blue).to(out.dtype.element_ty), exists)


@triton.jit
def _jitter_blur(x, out, deviations, u, likely, H, W, DOWN: tl.constexpr, REACH: tl.constexpr, PIXELS: tl.constexpr):
    """A Gaussian down or across one channel, mirrored at the border; images that are not blurred are copied."""
    n = tl.program_id(2).to(tl.int64)
    image = (n * 3 + tl.program_id(1)) * H * W
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    exists = pixel < H * W
    value = tl.load(x + image + pixel, exists, other=0).to(tl.float32)
    if tl.load(u + 3 * n + 2) < likely:
        deviation = tl.load(deviations + n).to(tl.float32)
        i, j, weights = pixel // W, pixel % W, 1.0
        for distance in tl.static_range(1, REACH + 1):
            weight = tl.exp(-0.5 * (distance / deviation) * (distance / deviation))
            if DOWN:
                before, behind = _mirrored(i - distance, H) * W + j, _mirrored(i + distance, H) * W + j
            else:
                before, behind = i * W + _mirrored(j - distance, W), i * W + _mirrored(j + distance, W)
            both = tl.load(x + image + before, exists, other=0).to(tl.float32)
            both += tl.load(x + image + behind, exists, other=0).to(tl.float32)
            value += weight * both
            weights += 2 * weight
        value /= weights
    tl.store(out + image + pixel, value.to(out.dtype.element_ty), exists)


@triton.jit
def _brightened(pixel, n, exists, brightness, u, strength, likely, count):
    factor = 1 + _change(brightness, n, u, strength, likely)
    red = _within(tl.load(pixel, exists, other=0).to(tl.float32) * factor)
    green = _within(tl.load(pixel + count, exists, other=0).to(tl.float32) * factor)
    return red, green, _within(tl.load(pixel + 2 * count, exists, other=0).to(tl.float32) * factor)


@triton.jit
def _change(column, n, u, strength, likely):
    """A parameter of an image, times the strength; 0 where its colours are not changed."""
    return tl.where(tl.load(u + 3 * n) < likely, tl.load(column + n).to(tl.float32) * strength, 0.0)


@triton.jit
def _away(value, centre, share):
    return _within(centre + (value - centre) * share)


@triton.jit
def _within(value):
    return tl.minimum(tl.maximum(value, 0.0), 1.0)


@triton.jit
def _grey(red, green, blue):
    return RED * red + GREEN * green + BLUE * blue


@triton.jit
def _mirrored(place, length):
    place = tl.abs(place)
    return tl.where(place < length, place, 2 * (length - 1) - place)
