"""What a model predicts for an image, as numbers and as pictures."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from oneway.common.errors import UserError
from oneway.common.words import listed
from oneway.data.dataset import Bytes, Colour
from oneway.data.decode.images import STRIPE
from oneway.data.mask_style import MaskStyle
from oneway.data.pictures import encoded, mark, palette
from oneway.runs.atomic import write_atomically

SHOWN = 5  # classes in the words for a prediction

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The class of every pixel of an image."""

    image: Bytes  # H×W×3 in RGB
    labels: Bytes  # H×W, indices into classes
    confidence: Floats  # H×W, the probability of that class; none where `predict_batch` was told to leave it out
    classes: tuple[str, ...]
    colours: tuple[Colour, ...]
    style: MaskStyle | None = None  # of the masks that the model learnt from, where that is known

    def __repr__(self) -> str:
        """The size of the image and the classes in it, the largest first."""
        height, width = self.labels.shape
        largest = sorted(((share, name) for name, share in self.shares().items() if share), reverse=True)
        return f"Prediction({height}×{width}: {listed((f'{name} {share:.1%}' for share, name in largest), SHOWN)})"

    def _repr_png_(self) -> bytes:
        """What notebooks show."""
        return encoded(self.overlay(), "PNG")

    def mask(self) -> Image.Image:
        """As the masks that the model learnt from; class indices where it learnt from no masks."""
        return self.indices() if self.style is None else self.style.picture(self.labels)

    def indices(self) -> Image.Image:
        """Class indices in a palette image: any viewer shows it in the colours of the classes."""
        picture = Image.fromarray(self.labels)
        picture.putpalette(palette(self.colours).tobytes())
        return picture

    def overlay(self, opacity: float = 0.5) -> Image.Image:
        """The image with the colours of the classes laid over, but for black: it would only darken it.

        By NumPy, since other threads would wait for Pillow. Of opacities, there are 256 between 0 and 1.
        """
        colours, share = palette(self.colours), round(256 * opacity)
        clear = colours.max(axis=1) == 0
        table, painted = colours.astype(np.uint16) * share, np.empty_like(self.image)
        height = max(1, STRIPE // self.labels.shape[1])
        for top in range(0, len(painted), height):
            labels, image, target = (pixels[top : top + height] for pixels in (self.labels, self.image, painted))
            mixed = np.multiply(image, 256 - share, dtype=np.uint16)
            mixed += np.take(table, labels, axis=0)
            mixed >>= 8
            target[:] = mixed
            if clear[: len(self.colours)].any():
                np.copyto(target, image, where=np.take(clear, labels)[..., None])
        return Image.fromarray(painted)

    def shares(self) -> dict[str, float]:
        """The share of each class in the pixels, from 0 to 1."""
        counts = np.array(Image.fromarray(self.labels).histogram()[: len(self.classes)])
        return dict(zip(self.classes, (counts / self.labels.size).tolist(), strict=True))

    def facts(self) -> dict[str, Any]:
        """What JSON files say: size, shares and, where it is known, mean confidence."""
        height, width = self.labels.shape
        known = {"confidence": float(self.confidence.mean(dtype=np.float64))} if self.confidence.size else {}
        return {"height": height, "width": width, **known, "shares": self.shares()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the mask as a PNG file: other formats would lose the class numbers."""
        path = Path(path)
        if path.suffix.lower() != ".png":
            raise UserError(f"{path}: masks are PNG files, which keep class numbers and colours. Let it end in .png.")
        write_atomically(path, png(self.mask()))


def png(mask: Image.Image, origin: str = "") -> bytes:
    """The content of a PNG file of classes: by runs of equal bytes, a quarter of the time, and no larger."""
    return encoded(mask, "PNG", compress_type=zlib.Z_RLE, pnginfo=mark("predict", origin))
