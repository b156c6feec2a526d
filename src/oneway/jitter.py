"""Scale, crop and flip on the device: crops are sampled straight from the pixels of the store.

Coordinates: an image covers [0, W] × [0, H]; pixel (i, j) has its centre at (j + ½, i + ½).
Shapes: N images of H×W pixels, each of its own size; crops of h×w pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oneway.config import Jitter
from oneway.data.dataset import IGNORE
from oneway.data.store import Store
from oneway.draws import Jitters

PADDING = 0.5
"""Middle grey, beyond the border of an image that does not go on as its mirror image."""


def jitter_inputs(
    store: Store, draw: Jitters, config: Jitter, dtype: torch.dtype = torch.float32, fused: bool = False
) -> Tensor:
    """N×3×h×w crops in [0, 1]: interpolated bilinearly, outside the image grey or its reflection.

    Without a crop size, inputs are what they are (points in the plane have no crops).
    """
    if config.crop is None:
        return store.pixels[store.start[draw.item]].to(dtype)
    window = _window(store, draw, config, config.crop)
    if fused:
        from oneway.kernels import fused_crops

        return fused_crops(store.pixels, *window, padding=PADDING)
    top, bottom, down = _neighbours(window.y.to(dtype), window.height)
    left, right, across = _neighbours(window.x.to(dtype), window.width)

    def between_columns(row: Tensor) -> Tensor:
        """N×h×w×3."""
        at_left, at_right = (store.pixels[window.places(row, column)].to(dtype) for column in (left, right))
        return torch.lerp(at_left, at_right, across[:, None, :, None])

    crops = torch.lerp(between_columns(top), between_columns(bottom), down[:, :, None, None]) / 255
    return torch.where(window.inside()[..., None], crops, PADDING).permute(0, 3, 1, 2)


def jitter_labels(store: Store, draw: Jitters, config: Jitter, fused: bool = False) -> Tensor:
    """N×h×w labels of the crops: those of the pixels that their centres fall into, ignored outside.

    A label of a whole image stays as it is.
    """
    if config.crop is None or not store.dense:
        return store.labels[draw.item].long()
    window = _window(store, draw, config, config.crop)
    if fused:
        from oneway.kernels import fused_label_crops

        return fused_label_crops(store.labels, *window)
    row, column = _clamped(window.y.floor(), window.height), _clamped(window.x.floor(), window.width)
    return torch.where(window.inside(), store.labels[window.places(row, column)], IGNORE).long()


class _Window(NamedTuple):
    """Where the rows and columns of N crops lie in their images."""

    start: Tensor  # N, the images' first pixels in the store
    height: Tensor  # N, of the images
    width: Tensor  # N
    y: Tensor  # N×h
    x: Tensor  # N×w

    def places(self, row: Tensor, column: Tensor) -> Tensor:
        """N×h×w places in the store of the pixels in the given rows (N×h) and columns (N×w)."""
        return (self.start[:, None] + row * self.width[:, None])[:, :, None] + column[:, None, :]

    def inside(self) -> Tensor:
        """N×h×w, whether the image covers a crop's pixel."""
        rows = (self.y >= 0) & (self.y <= self.height[:, None])
        columns = (self.x >= 0) & (self.x <= self.width[:, None])
        return rows[:, :, None] & columns[:, None, :]


def _window(store: Store, draw: Jitters, config: Jitter, crop: tuple[int, int]) -> _Window:
    start, (height, width) = store.start[draw.item], store.size[draw.item].T
    y = _places(height, draw.scale, crop[0], config.padding, draw.top)
    x = _places(width, draw.scale, crop[1], config.padding, draw.left)
    x = torch.where(draw.flip[:, None], width[:, None] - x, x)
    if config.beyond == "mirror":
        y, x = _mirrored(y, height), _mirrored(x, width)
    return _Window(start, height, width, y, x)


def _places(length: Tensor, scale: Tensor, cropped: int, padding: int, fraction: Tensor) -> Tensor:
    """N×cropped places along one axis. A crop begins at a whole pixel of the scaled image: scale 1 only moves."""
    slack = scale * length + 2 * padding - cropped
    # Negative where the scaled image is smaller than the crop: then it lies somewhere inside it.
    start = slack.sign() * (fraction * (slack.abs().floor() + 1)).floor() - padding
    centres = torch.arange(cropped, device=start.device, dtype=start.dtype) + 0.5
    return (start[:, None] + centres) / scale[:, None]


def _mirrored(places: Tensor, length: Tensor) -> Tensor:
    """Places beyond a border, as far on this side of it."""
    there_and_back = 2 * length[:, None]
    around = places.remainder(there_and_back)
    return around.minimum(there_and_back - around)


def _neighbours(places: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The pixels whose centres lie before and after a place, and how far it is from the first to the second."""
    before = (places - 0.5).floor()
    return _clamped(before, length), _clamped(before + 1, length), places - 0.5 - before


def _clamped(pixel: Tensor, length: Tensor) -> Tensor:
    return pixel.long().clamp(min=0).minimum(length[:, None] - 1)
