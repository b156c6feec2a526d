"""The region of an image that a crop is sampled from; without PyTorch, for processes that only decode.

Coordinates: an image covers [0, W] × [0, H]; pixel (i, j) has its centre at (j + ½, i + ½).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

Box = tuple[int, int, int, int]
"""A region of an image: top, left, bottom, right; the latter two are exclusive."""

OVERLAP = 0.43
"""Least overlap of two crops along each side: √0.18, so that their IoU is at least a tenth, as in CAC."""

MARGIN = 2
"""Extra pixels around a region, in case the device rounds coordinates differently."""

HALF, ONE = np.float32(0.5), np.float32(1)


class Cropping(NamedTuple):
    """Settings of the crops of a run."""

    crop: tuple[int, int]
    padding: int
    mirror: bool  # beyond borders
    cell: int  # second crops lie a multiple of so many pixels from the first


class CropDraw(NamedTuple):
    """The crop parameters of one image; all but `flip` are float32 numbers, as on the device."""

    scale: float
    top: float
    left: float
    flip: bool
    shift: tuple[float, float] | None = None  # of a second, overlapping crop; None: there is none


def needed_region(size: tuple[int, int], draw: CropDraw, cropping: Cropping) -> Box:
    """The region that the crop, or both crops, of an image of this height and width are sampled from."""
    bounds = []
    for axis, length in enumerate(size):
        least, most = _ends(length, axis, draw, cropping)
        if axis == 1 and draw.flip:
            least, most = length - most, length - least
        if cropping.mirror:
            least, most = _folded(least, most, length)
        first = min(max(math.floor(least - 0.5) - MARGIN, 0), length - 1)
        bounds.append((first, max(min(math.floor(most - 0.5) + 2 + MARGIN, length), first + 1)))
    (top, bottom), (left, right) = bounds
    return top, left, bottom, right


def most_needed(smallest_scale: float, crop: tuple[int, int], pairs: bool) -> int:
    """The number of pixels of the largest region that a crop can need."""
    reach = 1 + 2 * (1 - OVERLAP) if pairs else 1
    height, width = (math.ceil(reach * side / smallest_scale) + 3 + 2 * MARGIN for side in crop)
    return height * width


def _ends(length: int, axis: int, draw: CropDraw, cropping: Cropping) -> tuple[float, float]:
    """The least and the largest sampling coordinate of an image's crops along an axis, computed as in `jitter`."""
    cropped, scale = cropping.crop[axis], np.float32(draw.scale)
    slack = scale * np.float32(length) + np.float32(2 * cropping.padding) - np.float32(cropped)
    room = np.sign(slack) * np.floor(np.abs(slack))
    begin = np.sign(slack) * np.floor(np.float32(draw.left if axis else draw.top) * (np.floor(np.abs(slack)) + ONE))
    first = last = begin
    if draw.shift is not None:
        cell, reach = np.float32(cropping.cell), np.float32(math.floor((1 - OVERLAP) * cropped))
        least = np.ceil(max(min(room, 0) - begin, -reach) / cell)
        most = np.floor(min(max(room, 0) - begin, reach) / cell)
        shift = cell * (least + np.floor(np.float32(draw.shift[axis]) * (most - least + ONE)))
        first, last = min(begin, begin + shift), max(begin, begin + shift)
    padding = np.float32(cropping.padding)
    return float((first - padding + HALF) / scale), float((last - padding + (np.float32(cropped) - HALF)) / scale)


def _folded(least: float, most: float, length: int) -> tuple[float, float]:
    """The bounds of an interval of coordinates after mirroring at the borders of the image."""
    if most - least >= length or least < -length or most > 2 * length:
        return 0, length
    if most <= 0:
        return -most, -least
    if least >= length:
        return 2 * length - most, 2 * length - least
    if least < 0:
        return 0, max(-least, most)
    return (min(least, 2 * length - most), length) if most > length else (least, most)
