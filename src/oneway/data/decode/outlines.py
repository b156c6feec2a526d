"""Which pixels an outline encloses: polygons and run lengths, as COCO writes them.

A pixel belongs to a polygon if its centre does, by the even-odd rule; a centre on a left or upper border does, on a
right or lower one it does not. It belongs to an annotation if it belongs to any of its polygons.

Shapes: an image has H×W pixels; a polygon has V vertices.
"""

from __future__ import annotations

from math import ceil

import numpy as np
import numpy.typing as npt

FARTHEST = 2**24  # pixels from the origin: beyond, a coordinate is a mistake
BLOCK = 2**22  # crossings of edges and rows computed at once: bounds the memory of a polygon with countless edges
MOST_DIGITS = 13  # of five bits, in a compressed run length: 64 bits hold no more

Mask = npt.NDArray[np.bool_]


def outline_mask(segmentation: object, size: tuple[int, int]) -> Mask:
    """H×W: the pixels of an annotation of COCO's; a ValueError says what is wrong with it."""
    match segmentation:
        case {"counts": str(text), "size": [int(height), int(width)]} if (height, width) == size:
            return runs_mask(decompress(text), size)
        case {"counts": list(counts), "size": [int(height), int(width)]} if (height, width) == size:
            return runs_mask(counts, size)
        case {"counts": str() | list(), "size": other}:
            raise ValueError(f"size {other!r:.40} differs from that of the image, {list(size)}")
        case [list(), *_]:
            mask = np.zeros(size, dtype=np.bool_)
            for polygon in segmentation:
                mask |= polygon_mask(_pairs(polygon), size)
            return mask
        case [] | None:
            raise ValueError("it is empty, and a box alone says nothing about pixels; draw a polygon, or remove it")
    raise ValueError("neither a list of polygons nor run lengths with counts and size")


def _pairs(polygon: object) -> npt.NDArray[np.float64]:
    """V×2: x and y."""
    numbers = np.array(polygon, dtype=np.float64)
    if numbers.ndim != 1 or len(numbers) < 6 or len(numbers) % 2:
        raise ValueError(f"a polygon is x, y, x, y, … of at least three vertices; this one has {numbers.size} numbers")
    return numbers.reshape(-1, 2)


def polygon_mask(vertices: npt.NDArray[np.float64], size: tuple[int, int]) -> Mask:
    """H×W: the pixels whose centres lie inside.

    Each edge crosses the centre line of some rows, and flips all pixels to the right of the crossing.
    """
    if not (np.abs(vertices) <= FARTHEST).all():  # also false of what is no number
        raise ValueError(f"a coordinate is not finite, or beyond {FARTHEST}")
    mask = np.zeros(size, dtype=np.bool_)
    (left, top), (right, bottom) = (
        np.ceil(corner - 0.5).clip(0, size[::-1]).astype(np.int64) for corner in (vertices.min(0), vertices.max(0))
    )
    flips = np.zeros((bottom - top, right - left + 1), dtype=np.bool_)  # the last column is beyond the polygon
    ends = np.stack([vertices, np.roll(vertices, -1, axis=0)], axis=1)  # V×2×2
    upper_first = np.take_along_axis(ends, ends[:, :, 1].argsort(axis=1)[:, :, None], axis=1)
    for edges in np.array_split(upper_first, ceil(len(ends) * max(1, len(flips)) / BLOCK)):
        first, beyond = (np.ceil(edges[:, end, 1] - 0.5).clip(top, bottom).astype(np.int64) for end in (0, 1))
        edge = np.repeat(np.arange(len(edges)), beyond - first)
        rows = np.arange(len(edge)) - np.repeat(np.cumsum(beyond - first) - beyond, beyond - first)
        (x, y), (other_x, other_y) = edges[edge].transpose(1, 2, 0)
        crossings = x + (rows + 0.5 - y) * (other_x - x) / (other_y - y)
        columns = np.ceil(crossings - 0.5).clip(left, right).astype(np.int64)
        np.logical_xor.at(flips, (rows - top, columns - left), True)
    mask[top:bottom, left:right] = np.logical_xor.accumulate(flips, axis=1)[:, :-1]
    return mask


def runs_mask(counts: list[int], size: tuple[int, int]) -> Mask:
    """H×W from the lengths of runs, outside first, down the first column, then the next."""
    height, width = size
    if not all(isinstance(count, int) and count >= 0 for count in counts) or sum(counts) != height * width:
        raise ValueError(f"counts must be whole numbers that add up to the image's {height * width} pixels")
    inside = np.arange(len(counts)) % 2 == 1
    return np.repeat(inside, counts).reshape(width, height).T


def decompress(text: str) -> list[int]:
    """Run lengths from COCO's text form.

    A character holds five bits of a number, lowest first, and whether more follow; the last one's upper bit is the
    sign. From the fourth number on it is the difference to the number two before.
    """
    counts: list[int] = []
    number = digits = 0
    for character in text:
        code = ord(character) - ord("0")
        if not 0 <= code < 64 or digits == MOST_DIGITS:
            raise ValueError(f"counts: {character!r} is out of place in compressed run lengths")
        number |= (code & 31) << 5 * digits
        digits += 1
        if code & 32:
            continue
        signed = number - (1 << 5 * digits) if code & 16 else number
        counts.append(signed + (counts[-2] if len(counts) > 2 else 0))
        number = digits = 0
    if digits:
        raise ValueError("counts: the compressed run lengths end within a number")
    return counts
