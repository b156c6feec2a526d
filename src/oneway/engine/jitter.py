"""Scale, crop and flip on the device: crops are sampled directly from the store's pixels.

Coordinates: an image covers [0, W] × [0, H]; pixel (i, j) has its centre at (j + ½, i + ½).
Shapes: N images of H×W pixels, each of its own size; crops of h×w pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from oneway.config import Jitter
from oneway.draws import CropDraws, OverlapDraws
from oneway.engine.regions import OVERLAP
from oneway.engine.store import Store
from oneway.methods.interface import Pair
from oneway.models.projector import CELL
from oneway.ops import kernels_run
from oneway.ops.crops import Window, crop_images, crop_labels, window_by_kernel

PADDING = 0.5
"""The grey beyond the border of an image, unless it is mirrored there."""


def jitter_inputs(store: Store, draw: CropDraws, config: Jitter) -> Tensor:
    """N×3×h×w crops in [0, 1]: interpolated bilinearly, outside the image grey or its reflection.

    Without a crop size, inputs are what they are (points in the plane have no crops).
    """
    if config.crop is None:
        return store.pixels[store.start[draw.item]].float()
    return crop_images(store.pixels, _window(store, draw, config, config.crop), PADDING)


def jitter_labels(store: Store, draw: CropDraws, config: Jitter) -> Tensor:
    """N×h×w labels of the crops: those of the pixels that their centres fall into, ignored outside.

    A label of a whole image stays as it is.
    """
    if config.crop is None or not store.dense:
        return store.labels[draw.item].long()
    return crop_labels(store.labels, _window(store, draw, config, config.crop))


def jitter_pairs(store: Store, draw: CropDraws, overlap: OverlapDraws, config: Jitter) -> Pair:
    """The crops of `jitter_inputs`, and others of the same images at the same scale that overlap with them.

    Along either axis the second lies a multiple of CELL pixels further on or back, as far as the image reaches, and
    shares at least OVERLAP of its length with the first.
    """
    assert config.crop is not None
    shifts = _shifts(store, draw, overlap, config)
    windows = [_window(store, draw, config, config.crop, offset) for offset in (None, shifts)]
    first, second = (crop_images(store.pixels, window, PADDING) for window in windows)
    down, right = (shift.long() // CELL for shift in shifts)
    return Pair(first, second, windows[0].inside(), down, right, overlap.places)


def _window(
    store: Store, draw: CropDraws, config: Jitter, crop: tuple[int, int], shifts: Sequence[Tensor] | None = None
) -> Window:
    if shifts is None and kernels_run(store.size.device):
        start, height, width, y, x = window_by_kernel(store.start, store.size, *draw, crop, config.padding)
    else:
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


def _shifts(store: Store, draw: CropDraws, overlap: OverlapDraws, config: Jitter) -> list[Tensor]:
    """The offsets of second crops from the first, downwards and to the right."""
    assert config.crop is not None
    sizes = store.size[draw.item].T
    return [
        _shift(length, draw.scale, cropped, config.padding, fraction, u)
        for length, cropped, fraction, u in zip(sizes, config.crop, (draw.top, draw.left), overlap.shift.T, strict=True)
    ]


def _places(
    length: Tensor, scale: Tensor, cropped: int, padding: int, fraction: Tensor, shift: Tensor | None = None
) -> Tensor:
    """N×cropped sampling coordinates along an axis. Crops begin at whole pixels of the scaled image."""
    slack = scale * length + 2 * padding - cropped
    # Negative where the scaled image is smaller than the crop: then it lies somewhere inside it.
    start = _begin(slack, fraction) - padding
    start = start if shift is None else start + shift
    centres = torch.arange(cropped, device=start.device, dtype=start.dtype) + 0.5
    return (start[:, None] + centres) / scale[:, None]


def _shift(length: Tensor, scale: Tensor, cropped: int, padding: int, fraction: Tensor, u: Tensor) -> Tensor:
    """N offsets in pixels along an axis: uniform over the multiples of a cell that the image has room for."""
    slack = scale * length + 2 * padding - cropped
    begin, last = _begin(slack, fraction), slack.sign() * slack.abs().floor()
    reach = math.floor((1 - OVERLAP) * cropped)
    least = ((last.clamp(max=0) - begin).clamp(min=-reach) / CELL).ceil()
    most = ((last.clamp(min=0) - begin).clamp(max=reach) / CELL).floor()
    return CELL * (least + (u * (most - least + 1)).floor())


def _begin(slack: Tensor, fraction: Tensor) -> Tensor:
    """The first pixel of a crop in the scaled image, a whole number between 0 and the slack."""
    return slack.sign() * (fraction * (slack.abs().floor() + 1)).floor()


def _mirrored(places: Tensor, length: Tensor) -> Tensor:
    """Coordinates mirrored at the borders of the image."""
    there_and_back = 2 * length[:, None]
    around = places.remainder(there_and_back)
    return around.minimum(there_and_back - around)
