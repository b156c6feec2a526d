"""Scale, crop and flip on the device: crops are sampled straight from the pixels of the store.

Coordinates: an image covers [0, W] × [0, H]; pixel (i, j) has its centre at (j + ½, i + ½).
Shapes: N images of H×W pixels, each of its own size; crops of h×w pixels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oneway.config import Jitter
from oneway.draws import Jitters
from oneway.engine.store import Store
from oneway.ops.crops import Window, crop_images, crop_labels

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


def _window(store: Store, draw: Jitters, config: Jitter, crop: tuple[int, int]) -> Window:
    start, (height, width) = store.start[draw.item], store.size[draw.item].T
    y = _places(height, draw.scale, crop[0], config.padding, draw.top)
    x = _places(width, draw.scale, crop[1], config.padding, draw.left)
    x = torch.where(draw.flip[:, None], width[:, None] - x, x)
    if config.beyond == "mirror":
        y, x = _mirrored(y, height), _mirrored(x, width)
    return Window(start, height, width, y, x)


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
