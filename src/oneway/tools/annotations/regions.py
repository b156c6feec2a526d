"""The regions of a predicted mask: their class, how sure the model is of them, and their outlines.

Shapes: an image has H×W pixels; a ring has V vertices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oneway.data.dataset import Bytes
from oneway.tools.annotations.polygons import Ints, Points, Rings, junctions, simplify, trace

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Region:
    """Connected pixels of one class."""

    label: int
    confidence: float
    """The mean probability of the class in these pixels."""

    area: int
    """Pixels; holes that were filled are among them."""

    exact: tuple[Ints, ...]
    """The outer ring and then the holes along the edges of pixels: V×2 corners (row, column), one for each edge."""

    rings: tuple[Points, ...]
    """The same as x and y, within the tolerance."""

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, width and height in pixels."""
        (top, left), (bottom, right) = self.exact[0].min(axis=0), self.exact[0].max(axis=0)
        return int(left), int(top), int(right - left), int(bottom - top)

    def mask_in(self, size: tuple[int, int]) -> Mask:
        """Its pixels, in an image of so many rows and columns."""
        left, top, width, height = self.box
        whole = np.zeros(size, dtype=bool)
        whole[top : top + height, left : left + width] = self.mask()
        return whole

    def mask(self) -> Mask:
        """Its pixels, within its box."""
        left, top, width, height = self.box
        flips = np.zeros((height, width + 1), dtype=bool)
        for ring in self.exact:
            following = np.roll(ring, -1, axis=0)
            upright = ring[:, 1] == following[:, 1]
            rows = np.minimum(ring[upright, 0], following[upright, 0]) - top
            np.logical_xor.at(flips, (rows, ring[upright, 1] - left), True)
        return np.logical_xor.accumulate(flips, axis=1)[:, :-1]


def find_regions(
    labels: Bytes,
    confidence: npt.NDArray[np.float32],
    wanted: Sequence[int],
    tolerance: float,
    least: int,
) -> tuple[tuple[Region, ...], int]:
    """The regions of H×W labels, the largest first, and how many were left out because they are too small.

    Args:
        labels: H×W class indices.
        confidence: H×W probabilities of these classes.
        wanted: Classes whose regions count.
        tolerance: How far an outline may be from the edges of pixels; 0: it follows them.
        least: Pixels of a region; smaller ones are left out, and holes that are smaller are filled.
    """
    rings = trace(labels)
    areas = rings.areas()
    owner = _outer_rings(labels, rings, areas)
    means = _means(confidence, rings, areas, owner)
    holes: dict[int, list[int]] = {ring: [] for ring in np.flatnonzero(areas > 0).tolist()}
    for ring in np.flatnonzero(areas <= -least).tolist():
        holes[owner[ring]].append(ring)
    filled = {outer: int(areas[outer] + areas[inner].sum()) for outer, inner in holes.items()}
    of_class = [outer for outer in holes if rings.labels[outer] in wanted]
    chosen = sorted((outer for outer in of_class if filled[outer] >= least), key=lambda outer: -filled[outer])
    exact = {outer: tuple(rings[ring] for ring in (outer, *holes[outer])) for outer in chosen}
    simple = iter(simplify([ring for group in exact.values() for ring in group], junctions(labels), tolerance))
    regions = tuple(
        Region(int(rings.labels[outer]), means[outer], filled[outer], group, tuple(next(simple) for _ in group))
        for outer, group in exact.items()
    )
    return regions, len(of_class) - len(chosen)


def _outer_rings(labels: Bytes, rings: Rings, areas: Ints) -> list[int]:
    """For each ring the outer one of its region.

    To the left of a hole is a row of pixels of the region. Where that begins is a ring of the region which reaches
    farther to the left: the outer one, or another hole, of which the same is true.
    """
    height, width = labels.shape
    number, down = rings.number, rings.down
    ring_at = np.full((height, width), -1)  # of the left edge of a pixel, which runs upwards
    row, column = rings.starts[down < 0].T
    ring_at[row - 1, column] = number[down < 0]
    begins = np.where(ring_at >= 0, np.arange(width), 0)
    row, beyond = rings.starts[down > 0].T  # of edges with the region on their left
    order = np.lexsort((beyond, number[down > 0]))
    known, first = np.unique(number[down > 0][order], return_index=True)
    leftmost = order[first]
    before = np.maximum.accumulate(begins, axis=1)[row[leftmost], beyond[leftmost] - 1]
    parent = np.arange(len(rings))
    parent[known] = np.where(areas[known] < 0, ring_at[row[leftmost], before], known)
    while (parent[parent] != parent).any():
        parent = parent[parent]
    return parent.tolist()


def _means(values: npt.NDArray[np.float32], rings: Rings, areas: Ints, owner: Sequence[int]) -> list[float]:
    """For each outer ring the mean of H×W values over its region, from sums along rows up to the edges."""
    before = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(values, axis=1, dtype=np.float64, out=before[:, 1:])
    upright = rings.down != 0
    row, column = rings.starts[upright].T
    sums = before[row + rings.down[upright].clip(max=0), column]
    total = np.bincount(np.array(owner)[rings.number[upright]], rings.down[upright] * sums, len(rings))
    pixels = np.bincount(owner, areas, len(rings))
    return (total / np.where(pixels > 0, pixels, 1)).clip(0, 1).tolist()


def runs(mask: Mask) -> list[int]:
    """Lengths of runs along a flat mask, outside first: that one may be 0."""
    changes = np.flatnonzero(np.diff(mask, prepend=False))
    return np.diff(changes, prepend=0, append=len(mask)).tolist()
