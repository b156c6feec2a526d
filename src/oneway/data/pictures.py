"""Arrays become pictures, and pictures become bytes.

Shapes: H×W pixels. Where a pixel belongs to no class, or shows no part of an image, a picture is hatched: a plain grey
could be taken for a class.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from oneway.common.terms import IGNORE
from oneway.data.dataset import Bytes, Colour

if TYPE_CHECKING:
    from torch import Tensor

Mask = npt.NDArray[np.bool_]

STROKE: Colour = (140, 140, 140)
GROUND: Colour = (215, 215, 215)
"""The two greys of the hatching; `report/page.css` has the same."""

SHOWN_WIDTH = 384
"""Pictures are brought to about this width: small ones enlarged by a whole number, large ones reduced by one."""

MOST_HEIGHT = 4 * SHOWN_WIDTH

ORIGIN = "Origin"
"""The key in a PNG for a word that says what it was made from."""

HEAD = 2048
"""Bytes of a PNG that hold what `mark` says: before the pixels, and after any palette."""

PERIOD = 8  # pixels from one stroke to the next; a quarter of them are its own


def encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    """The content of an image file: `kind` and options are Pillow's."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def mark(verb: str, origin: str = "") -> PngInfo:
    """What says in a PNG, as Pillow's `pnginfo`, which verb of ours made it, and from what.

    Programs that edit it write their own.
    """
    info = PngInfo()
    info.add_text("Software", f"oneway {verb}")
    if origin:
        info.add_text(ORIGIN, origin)
    return info


def is_marked(path: Path, verb: str) -> bool:
    """Whether a file is a picture that this verb made; False where it cannot be read."""
    if path.is_symlink() or not path.is_file():  # a link may lead anywhere, and a pipe would never end
        return False
    try:
        with path.open("rb") as file:
            return f"Software\0oneway {verb}".encode() in file.read(HEAD)
    except OSError:
        return False


def data_uri(picture: Image.Image, kind: str, **options: Any) -> str:
    """The same as the `src` of an `<img>`."""
    content = base64.b64encode(encoded(picture, kind, **options)).decode("ascii")
    return f"data:image/{kind.lower()};base64,{content}"


def as_pixels(x: Tensor) -> Bytes:
    """H×W×3 of a 1×3×H×W image in [0, 1]; a perturbed one leaves that range, and is cut off there."""
    return (x[0].permute(1, 2, 0).clamp(0, 1) * 255).round().byte().cpu().numpy()


def palette(colours: Sequence[Colour], other: Colour = (0, 0, 0)) -> Bytes:
    """256×3: the colour of each class index, and one for all bytes that are none."""
    table = np.full((256, 3), other, dtype=np.uint8)
    table[: len(colours)] = colours
    return table


def strokes(height: int, width: int) -> Mask:
    """H×W: where the diagonal strokes of a hatching are."""
    return np.add.outer(np.arange(height), np.arange(width)) % PERIOD < PERIOD // 4


def hatched(pixels: Bytes, where: Mask) -> Bytes:
    """An H×W×3 picture with a hatching in place of some pixels."""
    hatching = np.array([GROUND, STROKE], dtype=np.uint8)[strokes(*where.shape).astype(int)]
    return np.where(where[..., None], hatching, pixels)


def draw_classes(labels: Bytes, colours: Sequence[Colour]) -> Image.Image:
    """H×W class indices in the colours of the classes, at the size shown; hatched where they are IGNORE."""
    indices = resize_labels(labels, shown_size(*labels.shape))
    # A palette keeps every edge exact and the file small. It has 256 colours, so that 255 classes leave one for IGNORE.
    greys = (STROKE, GROUND)[: 256 - len(colours)]
    if (ignored := indices == IGNORE).any():  # never in a prediction
        hatching = np.where(strokes(*indices.shape), len(colours), len(colours) + len(greys) - 1)
        indices = np.where(ignored, hatching, indices).astype(np.uint8)
    picture = Image.fromarray(indices)
    picture.putpalette([channel for colour in (*colours, *greys) for channel in colour])
    return picture


def shown_size(height: int, width: int) -> tuple[int, int]:
    """Width and height, as Pillow orders them; of a strip, a pixel is left each way, and it does not become endless."""
    excess = max(width / SHOWN_WIDTH, height / MOST_HEIGHT)
    if excess > 1:
        factor = round(excess)
        return max(1, width // factor), max(1, height // factor)
    factor = round(1 / excess)
    return width * factor, height * factor


def resize_labels(values: Bytes, size: tuple[int, int]) -> Bytes:
    """H×W values at another width and height, as they are: none lie between two."""
    return np.asarray(Image.fromarray(values).resize(size, Image.Resampling.NEAREST))
