"""Arrays to pictures that stand in the page itself.

Shapes: H×W pixels, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from oneway.data.dataset import Bytes, Colour
from oneway.data.pictures import Mask, data_uri, draw_classes, hatched, resize_labels, shown_size


def photo(pixels: Bytes, valid: Mask) -> str:
    """An H×W×3 image as a data URI, hatched where not `valid` (H×W)."""
    size = shown_size(*valid.shape)
    picture = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))
    outside = resize_labels(valid.astype(np.uint8), size) == 0
    return data_uri(Image.fromarray(hatched(picture, outside)), "PNG", optimize=True)


def class_map(labels: Bytes, colours: Sequence[Colour]) -> str:
    """H×W class indices as a data URI in the colours of the classes, hatched where they are IGNORE."""
    return data_uri(draw_classes(labels, colours), "PNG", optimize=True)
