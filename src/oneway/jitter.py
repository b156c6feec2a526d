"""Scale, crop and flip on the device, in one resampling.

Coordinates: an image covers [0, W] × [0, H]; pixel (i, j) has its centre at (j + ½, i + ½).
Shapes: N images of H×W pixels in, crops of h×w pixels out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oneway.data.dataset import IGNORE
from oneway.draws import Jitters

PADDING = 0.5
"""What an image continues with beyond its border: middle grey."""


def jitter_images(images: Tensor, draw: Jitters, crop: tuple[int, int], dtype: torch.dtype = torch.float32) -> Tensor:
    """N×3×h×w crops in [0, 1] of N×3×H×W uint8 images: interpolated bilinearly, grey outside the image."""
    grid = _sampling_grid(draw, (images.shape[-2], images.shape[-1]), crop, dtype)
    pixels = F.grid_sample(images.to(dtype) / 255, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return torch.where(_inside(grid)[:, None], pixels, PADDING)


def jitter_labels(labels: Tensor, draw: Jitters, crop: tuple[int, int]) -> Tensor:
    """N×h×w crops of N×H×W uint8 labels, as jittered images have them: the nearest pixel's, ignored outside."""
    grid = _sampling_grid(draw, (labels.shape[-2], labels.shape[-1]), crop, torch.float32)
    nearest = F.grid_sample(labels[:, None].float(), grid, mode="nearest", padding_mode="border", align_corners=False)
    return torch.where(_inside(grid), nearest[:, 0], IGNORE).long()


def _inside(grid: Tensor) -> Tensor:
    return (grid.abs() <= 1).all(dim=-1)


def _sampling_grid(draw: Jitters, size: tuple[int, int], crop: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """N×h×w×2 places in the image, in [-1, 1] from border to border, of the centres of the crop's pixels."""
    device = draw.scale.device
    axes = []
    for length, cropped, fraction in ((size[1], crop[1], draw.left), (size[0], crop[0], draw.top)):
        scaled_length = draw.scale * length
        # Negative where the scaled image is smaller than the crop: then it lies somewhere inside it.
        start = fraction * (scaled_length - cropped)
        centres = torch.arange(cropped, device=device, dtype=draw.scale.dtype) + 0.5
        axes.append(2 * (start[:, None] + centres) / scaled_length[:, None] - 1)
    x = torch.where(draw.flip[:, None], -axes[0], axes[0])
    y = axes[1]
    shape = (len(x), crop[0], crop[1])
    return torch.stack((x[:, None, :].expand(shape), y[:, :, None].expand(shape)), dim=-1).to(dtype)
