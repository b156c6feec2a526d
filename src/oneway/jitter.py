"""Scale, crop and flip on the device, in one resampling.

Coordinates: an image covers [0, W] × [0, H]; pixel (i, j) has its centre at (j + ½, i + ½).
Shapes: N images of H×W pixels in, crops of h×w pixels out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oneway.config import Jitter
from oneway.data.dataset import IGNORE
from oneway.draws import Jitters

PADDING = 0.5
"""What an image continues with beyond its border: middle grey."""


def jitter_inputs(inputs: Tensor, draw: Jitters, config: Jitter, dtype: torch.dtype = torch.float32) -> Tensor:
    """N×3×h×w crops in [0, 1] of N×3×H×W uint8 images: interpolated bilinearly, grey outside the image.

    Without a crop size, inputs are what they are (points in the plane have no crops).
    """
    if config.crop is None:
        return inputs.to(dtype)
    grid = _sampling_grid(draw, (inputs.shape[-2], inputs.shape[-1]), config.crop, config.padding, dtype)
    pixels = F.grid_sample(inputs.to(dtype) / 255, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return torch.where(_inside(grid)[:, None], pixels, PADDING)


def jitter_labels(labels: Tensor, draw: Jitters, config: Jitter) -> Tensor:
    """N×h×w crops of N×H×W uint8 labels, as jittered images have them: the nearest pixel's, ignored outside.

    A label of a whole image stays as it is.
    """
    if config.crop is None or labels.ndim == 1:
        return labels.long()
    grid = _sampling_grid(draw, (labels.shape[-2], labels.shape[-1]), config.crop, config.padding, torch.float32)
    nearest = F.grid_sample(labels[:, None].float(), grid, mode="nearest", padding_mode="border", align_corners=False)
    return torch.where(_inside(grid), nearest[:, 0], IGNORE).long()


def _inside(grid: Tensor) -> Tensor:
    return (grid.abs() <= 1).all(dim=-1)


def _sampling_grid(
    draw: Jitters, size: tuple[int, int], crop: tuple[int, int], padding: int, dtype: torch.dtype
) -> Tensor:
    """N×h×w×2 places in the image, in [-1, 1] from border to border, of the centres of the crop's pixels."""
    x = _places(draw.scale * size[1], crop[1], padding, draw.left)
    y = _places(draw.scale * size[0], crop[0], padding, draw.top)
    x = torch.where(draw.flip[:, None], -x, x)
    shape = (len(x), crop[0], crop[1])
    return torch.stack((x[:, None, :].expand(shape), y[:, :, None].expand(shape)), dim=-1).to(dtype)


def _places(scaled_length: Tensor, cropped: int, padding: int, fraction: Tensor) -> Tensor:
    """N×cropped places along one axis. A crop begins at a whole pixel of the scaled image: scale 1 only moves."""
    slack = scaled_length + 2 * padding - cropped
    # Negative where the scaled image is smaller than the crop: then it lies somewhere inside it.
    start = slack.sign() * (fraction * (slack.abs().floor() + 1)).floor() - padding
    centres = torch.arange(cropped, device=start.device, dtype=start.dtype) + 0.5
    return 2 * (start[:, None] + centres) / scaled_length[:, None] - 1
