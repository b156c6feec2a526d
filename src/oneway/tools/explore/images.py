"""The images on the page: those it offers and those it is given, at a size that can be computed while someone waits.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from rich.console import Console
from torch import Tensor

from oneway import data
from oneway.common.errors import UserError
from oneway.common.terms import COARSEST_STRIDE, SplitName
from oneway.config import Data
from oneway.data import streets
from oneway.data.dataset import Bytes, factor_of
from oneway.data.decode.images import image_size, read_image, reduced
from oneway.data.image_style import COLOURS, ImageStyle
from oneway.data.pictures import as_pixels, data_uri, encoded
from oneway.data.splits import Split
from oneway.runs import TrainedModel
from oneway.tools.evaluate import as_input, evenly_spaced
from oneway.tools.run_data import refuse_other_style

OFFERED = 24
"""Images of a data set, evenly spread over it."""

SCENES = 12
SCENE_SIZE = (128, 256)

KEPT_UPLOADS = 8

MOST_PIXELS = 512 * 1024
"""The most pixels of an image as networks see it: larger ones are made smaller."""

MOST_SIDE = 2048
LEAST_SIDE = COARSEST_STRIDE
"""Below, the coarsest feature map would be empty."""

MOST_VALUES = 2**24
"""Probabilities of one prediction, 64 MiB: with very many classes, images are computed smaller."""

MOST_UPLOADED_PIXELS = 2**25
"""Decoded, a file of a few megabytes can take a thousand times as much."""

LOSSLESS_PIXELS = 2**15
"""A picture of no more is enlarged on the page, where JPEG's blocks would show: it is sent as PNG."""

THUMBNAIL = (192, 96)

Part = Literal["validation", "labelled", "unlabelled", "unseen"]
"""What an image was in training."""


@dataclass(frozen=True)
class Picture:
    """An image that can be chosen."""

    key: str
    name: str
    pixels: Bytes  # H×W×3
    part: Part | None = None
    """What it was in the training of the runs that are shown; None where that is not known."""

    @property
    def x(self) -> Tensor:
        """1×3×H×W in [0, 1]."""
        return as_input(torch.from_numpy(self.pixels)[None])


class ImageStore:
    """Pictures by key, of at most `most` pixels: the offered ones for good, and the latest of those uploaded."""

    def __init__(self, offered: Iterable[Picture], most: int, style: ImageStyle = COLOURS, reduction: int = 1) -> None:
        self.offered = {picture.key: picture for picture in offered}
        self.uploaded: OrderedDict[str, Picture] = OrderedDict()
        self.most, self.style, self.reduction = most, style, reduction

    def find(self, key: str) -> Picture | None:
        """The picture with a key; None where there is none, or no longer."""
        return self.offered.get(key) or self.uploaded.get(key)

    def decode(self, content: bytes, name: str) -> Picture:
        """A picture from an uploaded file of whatever origin; a UserError says why it cannot be used."""
        key = "upload-" + blake2b(content, digest_size=8).hexdigest()
        image = decode_upload(content, name, self.style)
        seen = reduced(image, factor_of((image.shape[0], image.shape[1]), self.reduction))
        return Picture(key, name, shrink(seen, self.most))

    def add(self, picture: Picture) -> None:
        """Keep an uploaded picture, in place of the oldest."""
        self.uploaded[picture.key] = picture
        self.uploaded.move_to_end(picture.key)
        while len(self.uploaded) > KEPT_UPLOADS:
            self.uploaded.popitem(last=False)


def load_pictures(
    config: Data,
    run: Path,
    learnt: TrainedModel,
    splits: Sequence[Split],
    elsewhere: bool,
    most: int,
    console: Console,
) -> list[Picture]:
    """The images that validate runs, or else training images, of at most so many pixels.

    Args:
        config: Where they are.
        run: The first run.
        learnt: What it has learnt.
        splits: Of each run; the images that validated the first validate still, whichever would be held out by now.
        elsewhere: Whether this is another folder than the one trained on.
        most: Pixels of an image.
        console: Shows progress.

    Raises:
        UserError: There are none, or the model would see other bands or bits of them than it has learnt to.
    """
    known = {name for split in splits[:1] for name in split.validating}
    dataset = data.load(config, console, known=data.Known(known, learnt.classes))
    refuse_other_style(run, learnt.image_style, dataset)
    split: SplitName = "val" if len(dataset.read("val")) else "train"
    samples, digests = dataset.read(split), dataset.digests(split) if elsewhere else {}
    pictures: list[Picture] = []
    reason: UserError | None = None
    for number, index in enumerate(evenly_spaced(len(samples), OFFERED), start=1):
        try:
            pixels = shrink(samples.image(index), most)
        except UserError as error:  # too small, or a strip
            reason = UserError(f"{samples.names[index]}: {error}")
        else:
            name = samples.names[index]
            part = part_in_training(splits, name, digests.get(name, "") if elsewhere else None)
            pictures.append(Picture(f"sample-{number}", name, pixels, part))
    if reason is not None and not pictures:
        raise reason
    return pictures


def part_in_training(splits: Sequence[Split], name: str, digest: str | None) -> Part | None:
    """What an image was to some runs, the most to any of them; known by its pixels where a digest of them is given."""
    if not splits:
        return None
    if digest is None:
        taught = {
            "labelled" if name in one.labelled else "unlabelled" if name in one.unlabelled else "" for one in splits
        }
    else:
        taught = {one.taught_by(digest) or "" for one in splits}
    validated = digest is None or any(name in split.validating for split in splits)
    if "labelled" in taught:
        return "labelled"
    return "unlabelled" if "unlabelled" in taught else "validation" if validated else "unseen"


def render_scenes(most: int) -> list[Picture]:
    """Embedded street scenes, for those who have no other images here."""
    rendered = [streets.render(1, index, *SCENE_SIZE)[0] for index in range(SCENES)]
    return [
        Picture(f"scene-{number}", f"street scene {number}", shrink(pixels, most))
        for number, pixels in enumerate(rendered, start=1)
    ]


def decode_upload(content: bytes, name: str, style: ImageStyle = COLOURS) -> Bytes:
    """H×W×3 of the bytes of an image file, as a model sees it; a UserError says why not."""
    path = Path(name)  # which is not opened, but named
    height, width = image_size(path, content)
    if height * width > MOST_UPLOADED_PIXELS:
        raise UserError(
            f"{name}: {width}×{height} pixels are more than the {MOST_UPLOADED_PIXELS // 10**6} million that the page "
            "takes. Make it smaller."
        )
    return read_image(path, content, style)


def most_pixels(classes: int) -> int:
    """How large an image may be for which so many classes are predicted."""
    return min(MOST_PIXELS, MOST_VALUES // classes)


def shrink(pixels: Bytes, most: int) -> Bytes:
    """An H×W×3 image, made smaller where it has more pixels than that; a UserError where too little would be left."""
    height, width = pixels.shape[:2]
    factor = min(1.0, math.sqrt(most / (height * width)), MOST_SIDE / max(height, width))
    size = round(width * factor), round(height * factor)
    if min(size) < LEAST_SIDE:
        raise UserError(
            f"An image of {width}×{height} pixels cannot be used: it is {'narrow' if factor < 1 else 'small'}, and "
            f"{LEAST_SIDE} pixels each way must be left."
        )
    image = Image.fromarray(pixels)
    return np.array(image if factor == 1 else image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0))


def thumbnail(picture: Picture) -> bytes:
    """A small JPEG of the middle of a picture, as much of it as has the shape of THUMBNAIL."""
    small = ImageOps.fit(Image.fromarray(picture.pixels), THUMBNAIL, Image.Resampling.LANCZOS)
    return encoded(small, "JPEG", quality=85)


def as_data_uri(x: Tensor) -> str:
    """A 1×3×H×W image as the `src` of an `<img>`; what leaves the range of colours is cut off there."""
    picture = Image.fromarray(as_pixels(x))
    if picture.width * picture.height <= LOSSLESS_PIXELS:
        return data_uri(picture, "PNG")
    return data_uri(picture, "JPEG", quality=90, subsampling=0)


def pack(plane: Tensor) -> str:
    """H×W bytes, deflated, as text: the page paints them itself, so that it can highlight one class."""
    return base64.b64encode(zlib.compress(plane.contiguous().numpy().tobytes(), 1)).decode("ascii")
