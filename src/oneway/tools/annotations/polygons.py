"""Outlines of regions of one class, along the edges of pixels; and the same with fewer vertices.

An image covers [0, W] × [0, H], so that a vertex of an outline is a corner of pixels. A region is connected through
the sides of its pixels. Its outer ring runs clockwise as one sees it, its holes the other way.

Shapes: an image has H×W pixels; there are E unit edges, and a ring has V vertices, each x and y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
import numpy.typing as npt

from oneway.data.dataset import Bytes

Points = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STARTS = np.array([(0, 0), (0, 1), (1, 1), (1, 0)])
"""Row and column, from its pixel, of where each of a pixel's edges begins: top, right, bottom, left."""

AHEAD = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])
"""Row and column of the next pixel along each edge; the pixel across an edge is AHEAD of the edge before it."""


@dataclass(frozen=True, eq=False)
class Rings:
    """All outlines in an image: E unit edges, ring after ring, each in order."""

    starts: Ints  # E×2, row and column of the corner where an edge begins
    down: Ints  # E, rows from there to where it ends: 1, 0 or −1
    bounds: Ints  # where each ring begins, and the last one ends
    labels: Bytes  # of each ring: the class inside

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> Ints:
        return self.starts[self.bounds[number] : self.bounds[number + 1]]

    @property
    def number(self) -> Ints:
        """E: the ring that an edge belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.bounds))

    def areas(self) -> Ints:
        """Pixels inside each ring; those of a hole are negative."""
        return np.add.reduceat(self.down * self.starts[:, 1], self.bounds[:-1])


def trace(labels: Bytes) -> Rings:
    """The outlines of all regions of H×W labels."""
    padded = np.pad(labels.astype(np.int16), 1, constant_values=-1)
    across = [np.roll(padded, (-row, -column), axis=(0, 1)) for row, column in np.roll(AHEAD, 1, axis=0)]
    side, row, column = np.nonzero((padded != across) & (padded >= 0))
    number = np.full((4, *padded.shape), -1, dtype=np.int32)
    number[side, row, column] = np.arange(len(side))
    # After an edge: around the pixel's own corner, unless the pixel ahead has its label; then along that one, unless
    # the pixel across from it has the label too. So pixels that touch at a corner only are two regions.
    own, ahead = padded[row, column], (row + AHEAD[side, 0], column + AHEAD[side, 1])
    beyond = ahead[0] + AHEAD[side - 1, 0], ahead[1] + AHEAD[side - 1, 1]
    straight = padded[ahead] == own
    left = straight & (padded[beyond] == own)
    around = number[(side + 1) % 4, row, column]
    following = np.where(left, number[side - 1, *beyond], np.where(straight, number[side, *ahead], around))
    order, bounds = _cycles(following)
    starts = np.stack([row - 1, column - 1], axis=1) + STARTS[side]
    return Rings(starts[order], AHEAD[side[order], 0], bounds, own[order[bounds[:-1]]].astype(np.uint8))


def _cycles(following: npt.NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Edges cycle after cycle, each in order; and where each cycle begins, and the last one ends."""
    first, jump = np.arange(len(following)), following.copy()
    rounds = max(1, len(following).bit_length())
    for _ in range(rounds):
        first = np.minimum(first, first[jump])
        jump = jump[jump]
    last = following == first  # of a cycle that begins at its lowest number
    jump = np.where(last, np.arange(len(following)), following)
    left = np.where(last, 0, 1)
    for _ in range(rounds):
        left += left[jump]
        jump = jump[jump]
    order = np.lexsort((-left, first))
    return order, np.concatenate([np.flatnonzero(np.diff(first[order], prepend=-1)), [len(order)]])


def signed_area(ring: npt.NDArray[np.generic]) -> float:
    """Of V×2 points (x, y), y downwards: positive if they run clockwise as one sees it."""
    x, y = np.asarray(ring, dtype=np.float64).T
    return float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y) / 2)


def corners_only(ring: Ints) -> Ints:
    """A ring without the vertices at which it does not turn."""
    step = np.roll(ring, -1, axis=0) - ring
    return ring[(step != np.roll(step, 1, axis=0)).any(axis=1)]


def junctions(labels: Bytes) -> npt.NDArray[np.bool_]:
    """(H+1)×(W+1): corners of pixels where more than two regions meet, or one leaves the border of the image."""
    padded = np.pad(labels.astype(np.int16), 1, constant_values=-1)
    vertical = padded[:, 1:] != padded[:, :-1]  # edges between left and right
    horizontal = padded[1:] != padded[:-1]
    met = vertical[1:].astype(np.int8) + vertical[:-1] + horizontal[:, 1:] + horizontal[:, :-1]
    return met > 2


def simplify(rings: Sequence[Ints], fixed: npt.NDArray[np.bool_], tolerance: float) -> list[Points]:
    """Rings of corners (row, column) as V×2 points (x, y) with fewer vertices, by Douglas and Peucker.

    No vertex of the old outline is farther than `tolerance` from the new one. Vertices at `fixed` corners stay, and
    what lies between two of them is simplified the same way for the regions on both sides: no gap opens and nothing
    overlaps. A ring of which too little would be left stays as it is.
    """
    if not rings:
        return []
    height, width = fixed.shape[0] - 1, fixed.shape[1] - 1
    parts = [_arcs(ring, fixed) for ring in rings]
    arcs = [arc for part in parts for arc in part]
    turned = [arc[:-3:-1].ravel().tolist() < arc[:2].ravel().tolist() for arc in arcs]
    fitted = _fit([arc[::-1] if back else arc for arc, back in zip(arcs, turned, strict=True)], tolerance)
    lines = (arc[:0:-1] if back else arc[:-1] for arc, back in zip(fitted, turned, strict=True))
    simple = []
    for ring, part in zip(rings, parts, strict=True):
        points = np.concatenate([*islice(lines, len(part))])[:, ::-1].clip(0, [width, height])
        exact = corners_only(ring)[:, ::-1].astype(np.float64)
        usable = len(points) > 2 and 0.5 < signed_area(points) / signed_area(exact) < 2
        simple.append(points if usable else exact)
    return simple


def _arcs(ring: Ints, fixed: npt.NDArray[np.bool_]) -> list[Ints]:
    """A ring between fixed corners, each part with both ends; one without such a corner begins at its uppermost."""
    stops = np.flatnonzero(fixed[ring[:, 0], ring[:, 1]])
    if not len(stops):
        stops = np.lexsort((ring[:, 1], ring[:, 0]))[:1]
    closed = np.concatenate([ring[stops[0] :], ring[: stops[0] + 1]])
    cuts = np.append(stops - stops[0], len(ring))
    return [closed[begin : end + 1] for begin, end in pairwise(cuts)]


def _fit(arcs: Sequence[Ints], tolerance: float) -> list[Points]:
    """Each arc with the same ends and as few other vertices as the tolerance allows; all are refined together."""
    lengths = np.array([len(arc) for arc in arcs])
    points = np.concatenate(arcs).astype(np.float64)
    begins = np.cumsum(lengths) - lengths
    keep = np.zeros(len(points), dtype=bool)
    keep[begins] = keep[begins + lengths - 1] = True
    while True:
        at, segment = np.flatnonzero(keep), np.cumsum(keep) - 1
        nearer = _distance(points, points[at[segment]], points[at[np.minimum(segment + 1, len(at) - 1)]])
        away = np.where(keep, 0, nearer)
        farthest = np.maximum.reduceat(away, at)
        candidates = np.flatnonzero((away == farthest[segment]) & (away > tolerance))
        if not len(candidates):
            break
        keep[candidates[np.unique(segment[candidates], return_index=True)[1]]] = True
    following = np.minimum(np.arange(len(at)) + 1, len(at) - 1)
    moved = ~np.isin(at, [begins, begins + lengths - 1]) & (tolerance > 0)
    centred = _centre(points, at, segment)
    while True:  # those that came too far from the outline go back
        new = np.where(moved[:, None], centred, points[at])
        too_far = np.maximum.reduceat(_distance(points, new[segment], new[following[segment]]), at) > tolerance
        too_far |= np.roll(too_far, 1)
        if not (too_far & moved).any():
            return list(np.split(new, np.searchsorted(at, begins[1:])))
        moved &= ~too_far


def _centre(points: Points, at: Ints, segment: Ints) -> Points:
    """The vertices `at`, moved so that as much of the outline is on one side of each line as on the other.

    Vertices are corners of a staircase, most often all on the same side of the line that it stands for.
    """
    start = points[at]
    along = np.roll(start, -1, axis=0) - start
    length = np.maximum(np.linalg.norm(along, axis=1), 1e-9)
    inner = points - start[segment]
    last = np.append(at[1:], len(points)) - 1  # of each segment; behind it is the next vertex, where the sum has a 0
    doubled = np.add.reduceat(_cross(np.roll(inner, -1, axis=0), inner), at) + _cross(along, inner[last])
    normal = np.stack([-along[:, 1], along[:, 0]], axis=1) / length[:, None]
    shift = normal * (doubled / 2 / length)[:, None]
    before = np.roll(np.arange(len(at)), 1)
    # Where the two moved lines meet; between lines that are nearly one, the mean of both moves.
    sine = _cross(along[before], along) / (length[before] * length)
    share = _cross(shift - shift[before], along) / np.where(np.abs(sine) > 0.2, sine * length[before] * length, 1)
    met = start + shift[before] + share[:, None] * along[before]
    return np.where(np.abs(sine)[:, None] > 0.2, met, start + (shift + shift[before]) / 2)


def _cross(a: Points, b: Points) -> npt.NDArray[np.float64]:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]


def _distance(points: Points, start: Points, end: Points) -> npt.NDArray[np.float64]:
    """Of each point from the line between two others, whose ends count; they may be the same."""
    along, towards = end - start, points - start
    length = np.einsum("ij,ij->i", along, along)
    share = np.einsum("ij,ij->i", towards, along) / np.where(length > 0, length, 1)
    return np.linalg.norm(towards - share.clip(0, 1)[:, None] * along, axis=1)


def keyhole(rings: Sequence[Points]) -> Points:
    """An outer ring and its holes as one ring: to each hole and back again, the shortest way between vertices."""
    joined, *holes = rings
    for hole in sorted(holes, key=lambda ring: float(ring[:, 0].min())):
        gap = np.linalg.norm(joined[:, None] - hole[None], axis=2)
        here, there = np.unravel_index(gap.argmin(), gap.shape)
        around = np.concatenate([hole[there:], hole[: there + 1]])
        joined = np.concatenate([joined[: here + 1], around, joined[here:]])
    return joined
