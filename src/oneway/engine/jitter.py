"""Scale, crop and flip on the device: crops are sampled straight from the pixels of the store.

Coordinates: an image covers [0, W] × [0, H]; pixel (i, j) has its centre at (j + ½, i + ½).
Shapes: N images of H×W pixels, each of its own size; crops of h×w pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from oneway.config import Jitter
from oneway.draws import Jitters, Pairs
from oneway.engine.store import Box, Store
from oneway.methods.interface import Pair
from oneway.ops.crops import Window, crop_images, crop_labels

OVERLAP = 0.43
"""Of each side of two crops, at least: √0.18, so that the intersection is a tenth of their union, as in CAC."""

MARGIN = 2
"""Pixels around what a crop is made of, in case another device rounds otherwise."""

PADDING = 0.5
"""Middle grey, beyond the border of an image that does not go on as its mirror image."""


def jitter_inputs(store: Store, draw: Jitters, config: Jitter, dtype: torch.dtype = torch.float32) -> Tensor:
    """N×3×h×w crops in [0, 1]: interpolated bilinearly, outside the image grey or its reflection.

    Without a crop size, inputs are what they are (points in the plane have no crops).
    """
    if config.crop is None:
        return store.pixels[store.start[draw.item]].to(dtype)
    return crop_images(store.pixels, _window(store, draw, config, config.crop), PADDING, dtype)


def jitter_labels(store: Store, draw: Jitters, config: Jitter) -> Tensor:
    """N×h×w labels of the crops: those of the pixels that their centres fall into, ignored outside.

    A label of a whole image stays as it is.
    """
    if config.crop is None or not store.dense:
        return store.labels[draw.item].long()
    return crop_labels(store.labels, _window(store, draw, config, config.crop))


def jitter_pairs(store: Store, draw: Jitters, pairs: Pairs, config: Jitter, cell: int) -> Pair:
    """The crops of `jitter_inputs`, and others of the same images at the same scale that overlap with them.

    Along either axis the second lies a multiple of `cell` pixels further on or back, as far as the image reaches, and
    shares at least OVERLAP of its length with the first.
    """
    assert config.crop is not None
    shifts = _shifts(store, draw, pairs, config, cell)
    windows = [_window(store, draw, config, config.crop, offset) for offset in (None, shifts)]
    first, second = (crop_images(store.pixels, window, PADDING) for window in windows)
    return Pair(first, second, windows[0].inside(), shifts[0].long() // cell, shifts[1].long() // cell, pairs.places)


def _window(
    store: Store, draw: Jitters, config: Jitter, crop: tuple[int, int], shifts: Sequence[Tensor] | None = None
) -> Window:
    start, (height, width) = store.start[draw.item], store.size[draw.item].T
    down, right = shifts or (None, None)
    y = _places(height, draw.scale, crop[0], config.padding, draw.top, down)
    x = _places(width, draw.scale, crop[1], config.padding, draw.left, right)
    x = torch.where(draw.flip[:, None], width[:, None] - x, x)
    if config.beyond == "mirror":
        y, x = _mirrored(y, height), _mirrored(x, width)
    if store.box is None:
        return Window(start, height, width, y, x)
    # Whole numbers no larger than the places they are taken from: the differences are exact.
    top, left, bottom, beyond = store.box[draw.item].T
    return Window(start, bottom - top, beyond - left, y - top[:, None], x - left[:, None])


def needed_box(size: tuple[int, int], draw: Jitters, pairs: Pairs | None, config: Jitter, cell: int) -> Box:
    """The part of an image of this height and width that its crop is made of, and where there are two, both crops.

    Args:
        size: Height and width.
        draw: A table of one image.
        pairs: Likewise, where there are two crops.
        config: Settings of the crops.
        cell: See `jitter_pairs`.
    """
    plain = pairs is None and config.beyond != "mirror"
    rows, columns = _ends(size, draw, config) if plain else _reach(size, draw, pairs, config, cell)
    bounds = []
    for length, (least, most) in zip(size, (rows, columns), strict=True):
        first = min(max(math.floor(least - 0.5) - MARGIN, 0), length - 1)
        bounds.append((first, max(min(math.floor(most - 0.5) + 2 + MARGIN, length), first + 1)))
    (top, bottom), (left, right) = bounds
    return top, left, bottom, right


def _reach(
    size: tuple[int, int], draw: Jitters, pairs: Pairs | None, config: Jitter, cell: int
) -> list[tuple[float, float]]:
    """The least and the most of all places that crops of one image have along each axis."""
    assert config.crop is not None
    nothing = torch.empty(0, dtype=torch.uint8)
    store = Store(nothing, nothing, torch.zeros(1, dtype=torch.int64), torch.tensor([size]), dense=True)
    draw = draw._replace(item=torch.zeros(1, dtype=torch.int64))
    windows = [_window(store, draw, config, config.crop)]
    if pairs is not None:
        windows.append(_window(store, draw, config, config.crop, _shifts(store, draw, pairs, config, cell)))
    places = torch.cat([window.y for window in windows]), torch.cat([window.x for window in windows])
    return [(float(each.min()), float(each.max())) for each in places]


def _ends(size: tuple[int, int], draw: Jitters, config: Jitter) -> list[tuple[float, float]]:
    """The same, where they are in order, from the first and the last alone, by the arithmetic of `_places`.

    Many threads ask for it; each operation on a tensor would make them wait for one another.
    """
    assert config.crop is not None
    one, scale = np.float32(1), draw.scale.numpy()[0]
    found = []
    for length, cropped, fraction in zip(size, config.crop, (draw.top, draw.left), strict=True):
        slack = scale * np.float32(length) + np.float32(2 * config.padding - cropped)
        begin = np.sign(slack) * np.floor(fraction.numpy()[0] * (np.floor(np.abs(slack)) + one)) - config.padding
        found.append((float((begin + one / 2) / scale), float((begin + cropped - one / 2) / scale)))
    if draw.flip.numpy()[0]:
        found[1] = size[1] - found[1][1], size[1] - found[1][0]
    return found


def most_needed(smallest_scale: float, config: Jitter, pairs: bool) -> int:
    """The pixels of the largest part of an image that a crop can be made of."""
    assert config.crop is not None
    reach = 1 + 2 * (1 - OVERLAP) if pairs else 1
    height, width = (math.ceil(reach * side / smallest_scale) + 3 + 2 * MARGIN for side in config.crop)
    return height * width


def _shifts(store: Store, draw: Jitters, pairs: Pairs, config: Jitter, cell: int) -> list[Tensor]:
    """By how much second crops lie below and to the right of the first."""
    assert config.crop is not None
    sizes = store.size[draw.item].T
    return [
        _shift(length, draw.scale, cropped, config.padding, fraction, lot, cell)
        for length, cropped, fraction, lot in zip(sizes, config.crop, (draw.top, draw.left), pairs.shift.T, strict=True)
    ]


def _places(
    length: Tensor, scale: Tensor, cropped: int, padding: int, fraction: Tensor, shift: Tensor | None = None
) -> Tensor:
    """N×cropped places along one axis. A crop begins at a whole pixel of the scaled image: scale 1 only moves."""
    slack = scale * length + 2 * padding - cropped
    # Negative where the scaled image is smaller than the crop: then it lies somewhere inside it.
    start = _begin(slack, fraction) - padding
    start = start if shift is None else start + shift
    centres = torch.arange(cropped, device=start.device, dtype=start.dtype) + 0.5
    return (start[:, None] + centres) / scale[:, None]


def _shift(
    length: Tensor, scale: Tensor, cropped: int, padding: int, fraction: Tensor, lot: Tensor, cell: int
) -> Tensor:
    """N pixels, multiples of a cell, by which a crop can be moved along one axis: all that are possible are equal."""
    slack = scale * length + 2 * padding - cropped
    begin, last = _begin(slack, fraction), slack.sign() * slack.abs().floor()
    reach = math.floor((1 - OVERLAP) * cropped)
    least = ((last.clamp(max=0) - begin).clamp(min=-reach) / cell).ceil()
    most = ((last.clamp(min=0) - begin).clamp(max=reach) / cell).floor()
    return cell * (least + (lot * (most - least + 1)).floor())


def _begin(slack: Tensor, fraction: Tensor) -> Tensor:
    """The whole pixel of the scaled image that a crop begins at, between 0 and the slack."""
    return slack.sign() * (fraction * (slack.abs().floor() + 1)).floor()


def _mirrored(places: Tensor, length: Tensor) -> Tensor:
    """Places beyond a border, as far on this side of it."""
    there_and_back = 2 * length[:, None]
    around = places.remainder(there_and_back)
    return around.minimum(there_and_back - around)
