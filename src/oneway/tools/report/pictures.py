"""Arrays to pictures that stand in the page itself.

Shapes: H×W pixels, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from oneway.common.terms import IGNORE
from oneway.data.dataset import Bytes, Colour
from oneway.data.pictures import GROUND, STROKE, Mask, data_uri, hatched, strokes

SHOWN_WIDTH = 384
"""Pictures are brought to about this width: small ones enlarged by a whole number, large ones reduced by one."""

MOST_HEIGHT = 4 * SHOWN_WIDTH


def photo(pixels: Bytes, valid: Mask) -> str:
    """An H×W×3 image as a data URI, hatched where not `valid` (H×W)."""
    size = _shown_size(*valid.shape)
    picture = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))
    outside = _resize_labels(valid.astype(np.uint8), size) == 0
    return data_uri(Image.fromarray(hatched(picture, outside)), "PNG", optimize=True)


def class_map(labels: Bytes, colours: Sequence[Colour]) -> str:
    """H×W class indices as a data URI in the colours of the classes, hatched where they are IGNORE."""
    indices = _resize_labels(labels, _shown_size(*labels.shape))
    # A palette keeps every edge exact and the page small. It has 256 colours, so that 255 classes leave one for IGNORE.
    greys = (STROKE, GROUND)[: 256 - len(colours)]
    hatching = np.where(strokes(*indices.shape), len(colours), len(colours) + len(greys) - 1)
    picture = Image.fromarray(np.where(indices == IGNORE, hatching, indices).astype(np.uint8))
    picture.putpalette([channel for colour in (*colours, *greys) for channel in colour])
    return data_uri(picture, "PNG", optimize=True)


def _shown_size(height: int, width: int) -> tuple[int, int]:
    """Width and height, as Pillow orders them; of a strip, a pixel is left each way, and it does not become endless."""
    excess = max(width / SHOWN_WIDTH, height / MOST_HEIGHT)
    if excess > 1:
        factor = round(excess)
        return max(1, width // factor), max(1, height // factor)
    factor = round(1 / excess)
    return width * factor, height * factor


def _resize_labels(values: Bytes, size: tuple[int, int]) -> Bytes:
    return np.asarray(Image.fromarray(values).resize(size, Image.Resampling.NEAREST))
