"""Resample a grid of cells to another grid over the same picture, or a part of it, by one matrix for each axis.

Matrix products are deterministic forwards and backwards on a GPU, and exporters can trace them with symbolic sizes.
Neither holds for `F.interpolate` with `antialias`, which computes the same.

Shapes: N pictures, h×w cells of C channels, which become H×W samples.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Kernel = Callable[[Tensor], Tensor]


def linear(distance: Tensor) -> Tensor:
    """The kernel of bilinear interpolation, for distances in cells."""
    return (1 - distance.abs()).clamp(min=0)


def cubic(distance: Tensor) -> Tensor:
    """Keys's bicubic kernel with slope −½, as Pillow and PyTorch use it with antialiasing."""
    d = distance.abs()
    near, far = (1.5 * d - 2.5) * d * d + 1, ((-0.5 * d + 2.5) * d - 4) * d + 2
    return torch.where(d < 1, near, torch.where(d < 2, far, torch.zeros_like(d)))


def weights(cells: int, samples: int, extent: Tensor, kernel: Kernel) -> Tensor:
    """The samples×cells matrix that resamples along an axis; each row adds up to 1.

    Args:
        cells: Number of cells along the axis; cell i has its centre at i + ½.
        samples: Number of samples, in the middles of equal intervals of [0, extent].
        extent: The length that the samples cover, in cells: a scalar, on the device where the matrix is needed.
        kernel: The interpolation kernel; widened where samples are farther apart than cells (antialiasing).
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
