"""The geometric component T^G: a thin-plate-spline warp with four control points.

Coordinates: an image covers [0, W] × [0, H]; pixel (i, j) has its centre at (j + ½, i + ½). Control points and
displacements are (x, y) in pixels. The warp is backward: output pixel q takes its value from q − f(q).
The dense field f is linear in the four displacements. So kernels read one small basis that all images share, instead of
two coordinates for each pixel of each image.
Shapes: N images of H×W pixels, C channels.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oneway.ops.backend import tl, triton

Matrix = npt.NDArray[np.float64]

QUADRANTS = (0.25, 0.75)
"""Where control points lie along either axis, as fractions of an image."""

MINIMUM_WEIGHT = 0.5
"""Splatted pixels with less total weight are holes: their values would come from one side, half a pixel off."""


@dataclass(frozen=True)
class Warp:
    """A warp of N images of one size."""

    displacements: Tensor  # N×4×2, (x, y) in pixels: f's values in the control points
    height: int
    width: int
    control: tuple[float, float] = QUADRANTS

    @cached_property
    def points(self) -> Tensor:
        """N×H×W×2 places q − f(q); see `sampling_points`."""
        return sampling_points(self.displacements, self.height, self.width, self.control)

    @cached_property
    def valid(self) -> Tensor:
        """N×H×W: whether the sample of a pixel lies wholly inside the image."""
        return valid_points(self.points)

    def arguments(self) -> tuple[Tensor, Tensor]:
        """The kernel arguments: (H·W)×4 basis and displacements."""
        basis = basis_on(self.height, self.width, self.displacements.device, torch.float32, self.control)
        return basis, self.displacements.float().contiguous()


def sampling_points(displacements: Tensor, height: int, width: int, control: tuple[float, float] = QUADRANTS) -> Tensor:
    """N×H×W×2 places q − f(q), as (x, y) in units of pixels with pixel (0, 0)'s *centre* at the origin.

    `displacements` (N×4×2) are f's values in the control points. These are fixed, so f is linear in the displacements,
    and the dense field is one small matrix product.
    """
    basis = basis_on(height, width, displacements.device, displacements.dtype, control)
    with torch.autocast(displacements.device.type, enabled=False):  # in bfloat16, points would be off by pixels
        field = (basis @ displacements).view(-1, height, width, 2)
    rows = torch.arange(height, device=field.device, dtype=field.dtype)
    columns = torch.arange(width, device=field.device, dtype=field.dtype)
    centres = torch.stack((columns.expand(height, width), rows[:, None].expand(height, width)), dim=-1)
    return centres - field


def warp(x: Tensor, points: Tensor) -> Tensor:
    """N×C×H×W bilinearly sampled at N×H×W×2 `points`; zero where a sample is not wholly inside the image.

    Written out instead of `grid_sample`, whose normalised coordinates lose the last bits of a position: here a point on
    a pixel's centre gives that pixel to the bit, and a constant image stays constant.
    """
    n, c, height, width = x.shape
    column, row = points[..., 0], points[..., 1]
    left = column.floor().clamp(0, width - 1)
    top = row.floor().clamp(0, height - 1)
    right_weight = (column - left).to(x.dtype).view(n, 1, -1)
    bottom_weight = (row - top).to(x.dtype).view(n, 1, -1)
    corner = (top * width + left).long().view(n, 1, -1)
    step_right = (left < width - 1).long().view(n, 1, -1)
    step_down = (top < height - 1).long().view(n, 1, -1) * width
    pixels = x.reshape(n, c, -1)

    def at(index: Tensor) -> Tensor:
        return pixels.gather(2, index.expand(n, c, -1))

    upper = torch.lerp(at(corner), at(corner + step_right), right_weight)
    lower = torch.lerp(at(corner + step_down), at(corner + step_down + step_right), right_weight)
    sampled = torch.lerp(upper, lower, bottom_weight).view(n, c, height, width)
    return torch.where(valid_points(points)[:, None], sampled, 0)


def splat(x: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of `warp`: forward warping of N×C×H×W values to their `points`, and which pixels are valid.

    Every pixel is spread bilinearly over the four around its point, and what a pixel receives is divided by the weights
    that came with it.
    """
    n, c, height, width = x.shape
    column, row = points[..., 0], points[..., 1]
    total = x.new_zeros(n, c, height * width)
    weights = x.new_zeros(n, 1, height * width)
    for down, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
        i, j = row.floor() + down, column.floor() + right
        inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
        weight = torch.where(inside, (1 - (row - i).abs()) * (1 - (column - j).abs()), 0).to(x.dtype).view(n, 1, -1)
        target = torch.where(inside, i * width + j, 0).long().view(n, 1, -1)
        total = total.scatter_add(2, target.expand(n, c, -1), x.reshape(n, c, -1) * weight)
        weights = weights.scatter_add(2, target, weight)
    valid = (weights >= MINIMUM_WEIGHT).view(n, height, width)
    mean = (total / weights.clamp(min=MINIMUM_WEIGHT)).view(n, c, height, width)
    return torch.where(valid[:, None], mean, 0), valid


def valid_points(points: Tensor) -> Tensor:
    """N×H×W: whether the bilinear sample at a point lies wholly inside the image (T^G(1) = 1 in the paper)."""
    height, width = points.shape[1:3]
    column, row = points[..., 0], points[..., 1]
    return (column >= 0) & (column <= width - 1) & (row >= 0) & (row <= height - 1)


def basis_matrix(height: int, width: int, at: tuple[float, float]) -> Matrix:
    """(H·W)×4: the dense displacement field of a unit displacement in each control point.

    Solves the interpolation system of φ(r) = r² ln r with an affine part, once, for the four unit displacements.
    """
    control = np.array([(x * width, y * height) for y in at for x in at])
    affine = np.hstack((np.ones((4, 1)), control))
    system = np.block([[_radial(control, control), affine], [affine.T, np.zeros((3, 3))]])
    coefficients = np.linalg.solve(system, np.vstack((np.eye(4), np.zeros((3, 4)))))
    rows, columns = np.mgrid[:height, :width] + 0.5
    q = np.stack((columns.ravel(), rows.ravel()), axis=1)
    return np.hstack((_radial(q, control), np.ones((len(q), 1)), q)) @ coefficients


def _radial(points: Matrix, centres: Matrix) -> Matrix:
    squared = ((points[:, None] - centres) ** 2).sum(axis=2)
    # r² ln r = ½ r² ln r², which is 0 at r = 0.
    return 0.5 * squared * np.log(np.where(squared == 0, 1, squared))


@lru_cache(maxsize=8)
def basis_on(height: int, width: int, device: torch.device, dtype: torch.dtype, control: tuple[float, float]) -> Tensor:
    """The basis matrix on a device, cached for each image size."""
    return torch.from_numpy(basis_matrix(height, width, control)).to(device, dtype)


@triton.jit
def source_of(n, y, x, mask, basis, displacements, W: tl.constexpr):
    """Row and column that pixels (y, x) are sampled at, relative to the centre of pixel (0, 0)."""
    row, column = y.to(tl.float32), x.to(tl.float32)
    for point in tl.static_range(4):
        weight = tl.load(basis + (y * W + x) * 4 + point, mask, other=0)
        column -= weight * tl.load(displacements + n * 8 + 2 * point)
        row -= weight * tl.load(displacements + n * 8 + 2 * point + 1)
    return row, column


@triton.jit
def wholly_inside(row, column, H: tl.constexpr, W: tl.constexpr):
    """Whether bilinear samples lie wholly inside the image."""
    return (column >= 0) & (column <= W - 1) & (row >= 0) & (row <= H - 1)


@triton.jit
def neighbours(position, LENGTH: tl.constexpr):
    """The pixels before and behind a position along an axis, and the share of the latter."""
    position = tl.minimum(tl.maximum(position, 0), LENGTH - 1)
    before = tl.floor(position)
    return before.to(tl.int32), tl.minimum(before.to(tl.int32) + 1, LENGTH - 1), position - before
