"""Brings a grid of cells to another grid over the same picture, or over a part of it, by one matrix for each axis.

Products with matrices add up in one order, forwards and back, and need no fixed size: gradients are deterministic on a
GPU, and exporters can follow sizes as symbols. Neither holds for `F.interpolate` with `antialias`, which it equals.

Shapes: N pictures, h×w cells of C channels, which become H×W samples.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Kernel = Callable[[Tensor], Tensor]


def linear(distance: Tensor) -> Tensor:
    """Weights of bilinear interpolation, at distances in cells."""
    return (1 - distance.abs()).clamp(min=0)


def cubic(distance: Tensor) -> Tensor:
    """Weights of Keys's bicubic interpolation with slope −½, as Pillow and PyTorch have it where they antialias."""
    d = distance.abs()
    near, far = (1.5 * d - 2.5) * d * d + 1, ((-0.5 * d + 2.5) * d - 4) * d + 2
    return torch.where(d < 1, near, torch.where(d < 2, far, torch.zeros_like(d)))


def weights(cells: int, samples: int, extent: Tensor, kernel: Kernel) -> Tensor:
    """samples×cells shares, each row of which adds up to 1.

    Args:
        cells: How many there are along the axis; cell i has its centre at i + ½.
        samples: How many are spread evenly over [0, extent], in the middles of equal intervals.
        extent: How far they reach, in cells: a scalar, on the device where the matrix is needed.
        kernel: What a cell counts at a distance; widened where samples are farther apart than cells.
    """
    step = extent / samples
    centres, places = (torch.arange(n, device=extent.device, dtype=extent.dtype) + 0.5 for n in (samples, cells))
    distances = places - step * centres[:, None]
    shares = kernel(distances / step.clamp(min=1))
    return shares / shares.sum(dim=1, keepdim=True)


def sample(x: Tensor, size: tuple[int, int], extent: tuple[Tensor, Tensor], kernel: Kernel = linear) -> Tensor:
    """N×C×h×w cells to N×C×H×W samples in the same layout, spread over the first rows and columns: see `weights`."""
    rows, columns = (
        weights(cells, samples, reach, kernel).to(x.dtype)
        for cells, samples, reach in zip(x.shape[-2:], size, extent, strict=True)
    )
    y = rows @ x @ columns.mT
    return y if x.is_contiguous() else y.contiguous(memory_format=torch.channels_last)
