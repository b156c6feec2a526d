"""Where a thin-plate-spline warp takes its samples, computed where they are needed.

The dense field is linear in four displacements, so a kernel reads one small basis, which all images share, instead of
two coordinates for each pixel of each image.

Shapes: N images of H×W pixels.
"""

# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor


class Warp(NamedTuple):
    """A warp of N images, as `perturb.tps.sampling_points` has it."""

    basis: Tensor  # (H·W)×4 float32
    displacements: Tensor  # N×4×2, (x, y) in pixels

    def arguments(self) -> tuple[Tensor, Tensor]:
        """What kernels are given."""
        return self.basis.float().contiguous(), self.displacements.float().contiguous()


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
