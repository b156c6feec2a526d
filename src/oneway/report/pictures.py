"""Arrays to pictures that stand in the page itself.

Shapes: H×W pixels, C classes. Where a pixel belongs to no class, or shows no part of the image, a picture is hatched: a
plain grey could be mistaken for a class.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from oneway.data import IGNORE

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Colour = tuple[int, int, int]

HATCH: tuple[Colour, Colour] = ((150, 150, 150), (186, 186, 186))
"""Stroke and ground of the hatching."""

HATCH_PERIOD = 8  # pixels of the finished picture

SHOWN_WIDTH = 384
"""Pictures are brought to about this width: small ones enlarged by a whole number, large ones reduced by one."""


def photo(pixels: Bytes, valid: Mask) -> str:
    """An H×W×3 image as a data URI, hatched where not `valid` (H×W)."""
    size = _shown_size(*valid.shape)
    picture = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)).copy()
    outside = ~_nearest(valid.astype(np.uint8), size).astype(bool)
    picture[outside] = np.array(HATCH, dtype=np.uint8)[_hatch_ground(outside.shape)][outside]
    return data_uri(Image.fromarray(picture))


def class_map(labels: Bytes, colours: Sequence[Colour]) -> str:
    """H×W class indices as a data URI in the colours of the classes, hatched where they are IGNORE."""
    indices = _nearest(labels, _shown_size(*labels.shape))
    ignored = indices == IGNORE
    indices[ignored] = len(colours) + _hatch_ground(indices.shape)[ignored]
    # A palette keeps every edge exact and the page small.
    picture = Image.fromarray(indices)
    picture.putpalette([channel for colour in (*colours, *HATCH) for channel in colour])
    return data_uri(picture)


def data_uri(picture: Image.Image) -> str:
    """A picture as the `src` of an `<img>`."""
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _shown_size(height: int, width: int) -> tuple[int, int]:
    """Width and height, as Pillow orders them."""
    if width > SHOWN_WIDTH:
        factor = round(width / SHOWN_WIDTH)
        return width // factor, height // factor
    factor = round(SHOWN_WIDTH / width)
    return width * factor, height * factor


def _nearest(values: Bytes, size: tuple[int, int]) -> Bytes:
    return np.asarray(Image.fromarray(values).resize(size, Image.Resampling.NEAREST)).copy()


def _hatch_ground(shape: tuple[int, ...]) -> Bytes:
    """H×W: 0 on the diagonal strokes, 1 between them."""
    diagonal = np.indices(shape).sum(axis=0) % HATCH_PERIOD
    return np.where(diagonal < HATCH_PERIOD // 4, np.uint8(0), np.uint8(1))
