"""A trained model as a function of images.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

from oneway.common.errors import UserError
from oneway.common.terms import COARSEST_STRIDE
from oneway.common.words import first_line
from oneway.data.dataset import Bytes, Colour, factor_of
from oneway.data.decode.images import read_image, reduced
from oneway.data.decode.many_bands import upper_bits
from oneway.data.image_style import COLOURS, ImageStyle
from oneway.data.mask_style import MaskStyle
from oneway.engine.replay import ReplayedFunction, on
from oneway.models.favoured import Favoured
from oneway.models.mirrored import Mirrored, average
from oneway.models.tiles import TileableNetwork, TilePosition
from oneway.ops.losses import upsample
from oneway.ops.most_probable import most_probable
from oneway.tools.evaluate import as_input
from oneway.tools.predict.prediction import Floats, Prediction
from oneway.tools.predict.tiles import SMALLEST_TILE, Box, Look, slide, spans, stride_of, survey

ONE_PASS = 2**24
"""Most pixels of an image that is seen as a whole: a few GB of memory."""

TILE = (1536, 1536)
"""Height and width of the tiles of larger images, unless told otherwise."""

Size = tuple[int, int]
Picture = Image.Image | Bytes | str | PathLike[str]

Tell = Callable[[int, int], None]
"""Told which tile of how many comes now, counted from 1; some networks look at each of them twice."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """A trained model, ready to use."""

    network: nn.Module = field(repr=False)
    classes: tuple[str, ...]
    colours: tuple[Colour, ...]
    device: torch.device
    source: Path
    """The file it came from."""

    classifies: bool
    """Whether there is one class for a whole image, and no mask."""

    masks: MaskStyle | None = None
    """How the masks that it learnt from are stored."""

    image_style: ImageStyle = COLOURS
    """What of files it has learnt to see."""

    reduction: int = 1
    """How many times smaller than they are, each way, it sees large images at most, as it has learnt to."""

    half: bool = False
    """Whether the network computes in bfloat16."""

    favour: Mapping[str, float] = field(default_factory=dict)
    """By what the network multiplies the probabilities of some classes."""

    @property
    def mirror(self) -> bool:
        """Whether predictions are averaged over an image and its mirror image."""
        return isinstance(self._unfavoured, Mirrored)

    @property
    def _unfavoured(self) -> nn.Module:
        return self.network.network if isinstance(self.network, Favoured) else self.network

    def predict(self, image: Picture, tile: Size | None = None) -> Prediction:
        """The class of every pixel of an image, at its own size.

        Args:
            image: A Pillow image, a path, or an array of 8 or 16 bits: H×W×3 in RGB, or in the order of the model's
                bands; or H×W in greyscale.
            tile: Height and width of overlapping tiles; by default, only of images of more than 2**24 pixels. Where
                the model sees images smaller than they are, of what it sees.
        """
        return self.predict_batch([image], tile)[0]

    def predict_batch(
        self,
        images: Sequence[Picture],
        tile: Size | None = None,
        confidence: bool = True,
        tell: Tell = lambda number, total: None,
    ) -> list[Prediction]:
        """The same for several images: those of one size in one pass, unless they are seen in tiles.

        Without `confidence`, that of images seen in one pass is left out. `tell` hears of each tile.
        """
        if self.classifies:
            raise UserError(f"{self.source}: classifies whole images and has no masks. Use classify().")
        given = [pixels_of(image, self.image_style) for image in images]
        found: dict[int, Prediction] = {}
        for shape in dict.fromkeys(pixels.shape for pixels in given):
            numbers = [number for number, pixels in enumerate(given) if pixels.shape == shape]
            alike = self._predict_alike([given[number] for number in numbers], tile, confidence, tell)
            found |= zip(numbers, alike, strict=True)
        return [found[number] for number in range(len(given))]

    def _predict_alike(
        self, given: Sequence[Bytes], tile: Size | None, confidence: bool, tell: Tell
    ) -> list[Prediction]:
        """What the model makes of images of one size."""
        size = given[0].shape[0], given[0].shape[1]
        factor = factor_of(size, self.reduction)
        seen = [reduced(pixels, factor) for pixels in given]
        height, width = seen[0].shape[:2]
        if tile is None and height * width > ONE_PASS:
            tile = TILE
        if tile is not None and min(tile) < SMALLEST_TILE:
            raise UserError(f"tile {tile[0]}×{tile[1]}: too small to see anything. Use {SMALLEST_TILE} pixels or more.")
        with on(self.device), _explain_failures(height, width):
            if tile is None or (factor > 1 and tile[0] >= height and tile[1] >= width):
                found = self._whole(_together(seen), size, confidence)
            else:
                found = [_enlarged(self._in_tiles(image, tile, tell), size, factor) for image in seen]
        return [
            Prediction(pixels, labels.numpy(), probabilities.numpy(), self.classes, self.colours, self.masks)
            for pixels, (labels, probabilities) in zip(given, found, strict=True)
        ]

    def probabilities(self, image: Picture) -> Floats:
        """The probability of every class, C×H×W for every pixel of an image; C for a model that classifies."""
        pixels = pixels_of(image, self.image_style)
        with on(self.device), _explain_failures(*pixels.shape[:2]):
            found: Floats = self._probabilities(pixels)[0].float().cpu().numpy()
        return found

    def classify(self, image: Picture) -> tuple[str, float]:
        """The class of a whole image and its probability, by a model that classifies."""
        if not self.classifies:
            raise UserError(f"{self.source}: has a class for every pixel. Use predict().")
        pixels = pixels_of(image, self.image_style)
        with on(self.device), _explain_failures(*pixels.shape[:2]):
            probability, winner = self._probabilities(pixels)[0].max(dim=0)
        return self.classes[int(winner)], float(probability)

    @torch.inference_mode()
    def _whole(self, images: Tensor, size: Size, confidence: bool) -> list[tuple[Tensor, Tensor]]:
        return list(zip(*self._replayed(images, size, confidence), strict=True))

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which captures for itself."""
        return {name: value for name, value in self.__dict__.items() if name != "_replayed"}

    @cached_property
    def _replayed(self) -> ReplayedFunction:
        """Classes and their probabilities of N×H×W×3 bytes, at some size, with or without these probabilities."""

        def classify(images: Tensor, size: Size, confidence: bool) -> tuple[Tensor, Tensor]:
            return most_probable(self._call(self.network, as_input(images)), size, confidence)

        return ReplayedFunction(classify, self.device)

    @torch.inference_mode()
    def _in_tiles(self, image: Bytes, tile: Size, tell: Tell) -> tuple[Tensor, Tensor]:
        """Labels and confidence; of a network that can tell its parts, with the context of the whole image."""
        network = self._unfavoured.network if isinstance(self._unfavoured, Mirrored) else self._unfavoured
        tileable = isinstance(network, TileableNetwork)
        rounds = 1 + tileable * (1 + self.mirror)
        total = rounds * len(spans(image.shape[0], tile[0])) * len(spans(image.shape[1], tile[1]))
        numbers = count(1)

        def counted(look: Look) -> Look:
            def telling(pixels: Tensor, box: Box) -> Tensor:
                tell(next(numbers), total)
                return look(pixels, box)

            return telling

        def slid(look: Look) -> tuple[Tensor, Tensor]:
            favour = self.network.favour if isinstance(self.network, Favoured) else lambda logits: logits
            return slide(counted(lambda pixels, box: favour(look(pixels, box))), image, tile)

        if not isinstance(network, TileableNetwork):
            return slid(lambda pixels, _: self._call(self._unfavoured, self._input(pixels)))
        look = self._within(network, image, tile, counted)
        if not self.mirror:
            return slid(look)
        turned, width = image[:, ::-1], image.shape[1]
        look_at_turned = self._within(network, turned, tile, counted)

        def both(pixels: Tensor, box: Box) -> Tensor:
            found = look(pixels, box)
            first, last = width - box.columns[1], width - box.columns[0]
            # Tiles begin where cells of the mirror image begin: this one may reach farther, and that is left out.
            cells = first // COARSEST_STRIDE, -(-last // COARSEST_STRIDE)
            there = Box(box.rows, (COARSEST_STRIDE * cells[0], min(COARSEST_STRIDE * cells[1], width)))
            other = torch.from_numpy(turned[None, slice(*there.rows), slice(*there.columns)].copy())
            begin = -(-(first - there.columns[0]) // stride_of(found, box))
            return average(found, look_at_turned(other, there)[..., begin : begin + found.shape[-1]].flip(-1))

        return slid(both)

    def _within(self, network: TileableNetwork, image: Bytes, tile: Size, counted: Callable[[Look], Look]) -> Look:
        """What a network makes of the tiles of an image, with the context of all of it."""
        surveyed = survey(counted(lambda pixels, _: self._call(network.survey, self._input(pixels))), image, tile)
        context = self._call(network.context, surveyed)

        def logits(pixels: Tensor, box: Box) -> Tensor:
            rows, columns = (slice(*cells) for cells in box.at(COARSEST_STRIDE))
            position = TilePosition((box.rows[0], box.columns[0]), (image.shape[0], image.shape[1]))
            return self._call(network.within, self._input(pixels), context[:, :, rows, columns], position)

        return logits

    @torch.inference_mode()
    def _probabilities(self, image: Bytes) -> Tensor:
        """1×C×H×W (or 1×C) of H×W×3 bytes."""
        size = image.shape[0], image.shape[1]
        x = self._input(torch.tensor(reduced(image, factor_of(size, self.reduction)))[None])
        return upsample(self._call(self.network, x), size).softmax(dim=1)

    def _input(self, images: Tensor) -> Tensor:
        return as_input(images.to(self.device))  # channels last in memory already

    def _call(self, function: Callable[..., Tensor], *inputs: Any) -> Tensor:
        """A part of the network, or all of it."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            return function(*inputs)


def _together(images: Sequence[Bytes]) -> Tensor:
    """N×H×W×3 of images of one size; a single one is not copied."""
    alone = len(images) == 1 and images[0].flags.writeable  # else PyTorch would warn
    return torch.from_numpy(images[0][None] if alone else np.stack(images))


def _enlarged(found: tuple[Tensor, Tensor], size: Size, factor: int) -> tuple[Tensor, Tensor]:
    """Labels and confidence of an image that was seen so many times smaller, at its size."""
    rows, columns = (torch.arange(length)[:, None] // factor for length in size)
    labels, confidence = (values[rows, columns.T] for values in found)
    return labels, confidence


def pixels_of(image: Picture, style: ImageStyle = COLOURS) -> Bytes:
    """H×W×3 bytes in RGB, upright; of a file or a Pillow image, the bands of a style. Arrays are in order already.

    Of 16 bits, the upper 8 of those in use by the style.
    """
    if isinstance(image, Image.Image) and image.mode == "I;16":
        image = np.asarray(ImageOps.exif_transpose(image))
    if isinstance(image, Image.Image):
        if image.mode[0] in "IF":
            raise UserError(f"image: samples of kind {image.mode} have no agreed range. Convert it to RGB first.")
        upright = ImageOps.exif_transpose(image)
        if (bands := style.bands) is None:
            return np.asarray(upright.convert("RGB"))
        if image.mode in ("1", "P", "PA") or max(bands) > len(image.getbands()):
            raise UserError(
                f"image: of kind {image.mode}, and the model sees {style}. Give an image "
                "that has them, the path of its file, or an H×W×3 array of these bands in this order."
            )
        return np.stack([np.asarray(upright.getchannel(band - 1)) for band in bands], axis=2)
    if isinstance(image, str | PathLike):
        return read_image(Path(image), style=style)
    if isinstance(image, np.ndarray) and image.dtype == np.uint16 and image.size:
        image = upper_bits(Path("image"), image, style.bits)
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 2 and style.bands is None:
        image = np.repeat(image[..., None], 3, axis=2)
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        given = f"{image.dtype} {list(image.shape)}" if isinstance(image, np.ndarray) else type(image).__name__
        raise UserError(
            f"image: expected H×W×3 bytes in RGB, H×W in greyscale, a Pillow image or a path, and not {given}."
        )
    if not image.size:
        raise UserError(f"image: {image.shape[0]}×{image.shape[1]} pixels are none.")
    return np.ascontiguousarray(image)  # PyTorch takes no view that runs backwards, as from BGR


@contextmanager
def _explain_failures(height: int, width: int) -> Iterator[None]:
    """Turn what a network raises about memory or sizes into a UserError that says what to do."""
    try:
        yield
    except RuntimeError as error:
        reason = first_line(error)
        if isinstance(error, torch.OutOfMemoryError) or "memory" in reason:
            raise UserError(
                f"{height}×{width} pixels do not fit into memory at once. See them in tiles: --tile 1024 1024."
            ) from error
        raise UserError(f"the network fails on {height}×{width} pixels ({reason}).") from error
