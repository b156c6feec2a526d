"""Random intensities (AugSeg, Zhao et al., 2023): a few operations on the colours of an image, of random strength.

Operations are torchvision's of the same name; ranges are those of AugSeg's code. The choice is made on the device, so
every operation is computed for every image, and one result is selected.

Shapes: N images of H×W pixels, RGB in [0, 1] going in and coming out; strengths are N×1×1×1, in [0, 1).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from oneway.draws import Intensities
from oneway.ops.colour import blur, grey_of
from oneway.ops.photometric import shift_hue

LEVELS = 256
WEAKEST, RANGE = 0.95, 0.9
"""Contrast, brightness, saturation and sharpness are multiplied by a factor in [0.05, 0.95]."""


def vary_intensity(x: Tensor, draw: Intensities) -> Tensor:
    """N×3×H×W images after one to three operations each."""
    for place in range(draw.operation.shape[1]):
        operation, strength = (column[:, place].view(-1, 1, 1, 1) for column in (draw.operation, draw.strength))
        operation = torch.where(place < draw.steps.view(-1, 1, 1, 1), operation, 0)
        before, strength = x, strength.to(x.dtype)
        for number, change in enumerate(OPERATIONS[1:], start=1):
            x = torch.where(operation == number, change(before, strength), x)
    return x


def keep(x: Tensor, strength: Tensor) -> Tensor:
    """The identity."""
    return x


def autocontrast(x: Tensor, strength: Tensor) -> Tensor:
    """Stretch each channel so that its darkest value is 0 and its lightest 1."""
    low, high = x.amin(dim=(2, 3), keepdim=True), x.amax(dim=(2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / torch.where(high > low, high - low, 1), x)


def equalize(x: Tensor, strength: Tensor) -> Tensor:
    """Equalise the histogram of each channel, in 256 levels."""
    levels = (x * (LEVELS - 1e-3)).long().clamp(0, LEVELS - 1).flatten(2)
    counts = levels.new_zeros(*levels.shape[:2], LEVELS).scatter_add_(2, levels, torch.ones_like(levels))
    up_to = counts.cumsum(dim=2)
    below_lightest = torch.where(up_to < levels.shape[2], up_to, 0).amax(dim=2, keepdim=True)
    width = below_lightest // (LEVELS - 1)
    ranks = ((up_to - counts + width // 2) // width.clamp(min=1)).clamp(0, LEVELS - 1)
    equalized = ranks.gather(2, levels).view_as(x).to(x.dtype) / (LEVELS - 1)
    return torch.where(width[..., None] > 0, equalized, x)


def gaussian_blur(x: Tensor, strength: Tensor) -> Tensor:
    """Blur with a deviation of 0.1 to 2 pixels."""
    return blur(x, 0.1 + 1.9 * strength.view(-1))


def contrast(x: Tensor, strength: Tensor) -> Tensor:
    """Interpolate towards the mean grey of the image."""
    return _between(grey_of(x).mean(dim=(2, 3), keepdim=True), x, strength)


def brightness(x: Tensor, strength: Tensor) -> Tensor:
    """Interpolate towards black."""
    return _between(torch.zeros_like(x), x, strength)


def saturation(x: Tensor, strength: Tensor) -> Tensor:
    """Interpolate towards the grey of each pixel."""
    return _between(grey_of(x), x, strength)


def sharpness(x: Tensor, strength: Tensor) -> Tensor:
    """Interpolate towards a mean of 3×3 pixels in which the middle one counts five times; borders stay."""
    inner = (9 * F.avg_pool2d(x, kernel_size=3, stride=1) + 4 * x[..., 1:-1, 1:-1]) / 13
    smooth = x.clone()
    smooth[..., 1:-1, 1:-1] = inner
    return _between(smooth, x, strength)


def posterize(x: Tensor, strength: Tensor) -> Tensor:
    """Quantise to 16 to 128 levels."""
    levels = 2 ** (7 - (4 * strength).floor())
    return (x * levels).floor().minimum(levels - 1) / levels


def solarize(x: Tensor, strength: Tensor) -> Tensor:
    """Invert values above a threshold."""
    return torch.where(x >= 1 - strength, 1 - x, x)


def hue(x: Tensor, strength: Tensor) -> Tensor:
    """Shift the hue by any angle."""
    return shift_hue(x, strength - 0.5)


OPERATIONS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    keep,
    autocontrast,
    equalize,
    gaussian_blur,
    contrast,
    brightness,
    saturation,
    sharpness,
    posterize,
    solarize,
    hue,
)


def _between(base: Tensor, x: Tensor, strength: Tensor) -> Tensor:
    return torch.lerp(base.expand_as(x), x, WEAKEST - RANGE * strength)
