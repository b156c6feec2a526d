"""What a model makes of one image, and how it is shown.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from oneway.common.errors import UserError
from oneway.data.dataset import Bytes, Colour
from oneway.data.pictures import encoded, palette
from oneway.runs.atomic import write_atomically

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Prediction:
    """The class of every pixel of an image."""

    image: Bytes  # H×W×3 in RGB
    labels: Bytes  # H×W, indices into classes
    confidence: Floats  # H×W, the probability of that class
    classes: tuple[str, ...]
    colours: tuple[Colour, ...]

    def mask(self) -> Image.Image:
        """Class indices in a palette image: any viewer shows it in the colours of the classes."""
        picture = Image.fromarray(self.labels)
        picture.putpalette(palette(self.colours).tobytes())
        return picture

    def overlay(self, opacity: float = 0.5) -> Image.Image:
        """The image with the colours of the classes laid over, but for black: it would only darken it."""
        colours, image = palette(self.colours), Image.fromarray(self.image)
        painted = Image.blend(image, Image.fromarray(colours[self.labels]), opacity)
        return Image.composite(painted, image, Image.fromarray(colours.max(axis=1)[self.labels] > 0))

    def shares(self) -> dict[str, float]:
        """The share of each class in the pixels, from 0 to 1."""
        counts = np.bincount(self.labels.reshape(-1), minlength=len(self.classes))
        return dict(zip(self.classes, (counts / self.labels.size).tolist(), strict=True))

    def facts(self) -> dict[str, Any]:
        """What JSON files say: size, shares and mean confidence."""
        height, width = self.labels.shape
        return {
            "height": height,
            "width": width,
            "confidence": float(self.confidence.mean(dtype=np.float64)),
            "shares": self.shares(),
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the mask as a PNG file: other formats would lose the class numbers."""
        path = Path(path)
        if path.suffix.lower() != ".png":
            raise UserError(f"{path}: masks are PNG files, which keep class numbers and colours. Let it end in .png.")
        write_atomically(path, encoded(self.mask(), "PNG"))
