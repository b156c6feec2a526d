"""The data set on the device: all pixels of all images in one flat array, and where each image begins.

Images of different sizes need nothing special, and no batch is assembled: crops are sampled from the array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oneway.engine.regions import Box

AT_ONCE = 2**24
"""Pixels that are copied from the disk to the device at a time."""


Array = npt.NDArray[Any]


class FlatArray(Protocol):
    """Values of all images, one image after another: an array in memory, or one that is read from disk when sliced."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, part: Any, /) -> Array: ...


class FlatArrayOnDisk(FlatArray, Protocol):
    """A flat array that can be read into an array in memory."""

    def read(self, start: int, into: Array) -> None:
        """Fill an array with the values from index `start` on."""


Choose = Callable[[tuple[int, int]], Box]
"""A function that chooses a region of an image by the image's height and width."""


class ImageRegion(Protocol):
    """A decoded region of an image."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the whole image."""

    @property
    def box(self) -> Box: ...
    @property
    def pixels(self) -> Array:
        """H×W×3 uint8, the pixels of the box."""


class Decoders(Protocol):
    """Decode images of a pool in the background, each in one of a fixed number of slots."""

    def begin(self, slot: int, image: int, choose: Choose) -> None:
        """Start decoding an image in a slot; the slot's previous image and its pixels are dropped."""

    def result(self, slot: int) -> ImageRegion:
        """Wait for the region of the slot's image, or of a substitute where the image cannot be decoded.

        The substitute depends on the seed alone. The pixels stay until the next image is begun in this slot.
        """

    def close(self) -> None:
        """Stop without waiting for images that are being decoded."""


class Pool(Protocol):
    """Unlabelled images that are decoded on demand; `data.pool.Pool` is one."""

    @property
    def workers(self) -> int:
        """How many images are decoded in parallel."""

    def __len__(self) -> int: ...
    def decoders(self, seed: int, slots: int, pixels: int) -> Decoders:
        """Decoders with so many slots, for regions of at most so many pixels."""

    def close(self) -> None:
        """Stop reading; pending reads are abandoned."""


class Images(Protocol):
    """Decoded images of a reader; `data.dataset.Samples` are such."""

    @property
    def pixels(self) -> FlatArray:
        """P×3 uint8 in RGB, or P×2 float32: points, a pixel each."""

    @property
    def labels(self) -> FlatArray:
        """Labels of the first images, uint8: one for each pixel, or one for each image."""

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """N×2, height and width."""

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """N, each image's first pixel."""

    @property
    def dense(self) -> bool:
        """Whether labels are of pixels, not of whole images."""

    @property
    def pool(self) -> Pool | None:
        """Further unlabelled images; their numbers follow those of the others."""


@dataclass(frozen=True)
class Store:
    """Samples on a device."""

    pixels: Tensor  # P×3 uint8, or P×2 float32 points
    labels: Tensor  # of the first samples, uint8: one for each pixel, or one for each sample
    start: Tensor  # N int64, each sample's first pixel
    size: Tensor  # N×2 int64, height and width
    dense: bool
    """Whether labels are of pixels, not of whole images."""

    box: Tensor | None = None  # N×4 int64 (see Box), the region that a sample's pixels are of; None: the whole sample

    @classmethod
    def hold(cls, samples: Images, device: torch.device) -> Store:
        """Copy decoded samples to the device; samples that are there already are shared."""
        return cls(
            _held(samples.pixels, device),
            _held(samples.labels, device),
            torch.from_numpy(samples.starts).to(device),
            torch.from_numpy(samples.sizes).to(device),
            samples.dense,
        )


def _held(row: FlatArray, device: torch.device) -> Tensor:
    if isinstance(row, np.ndarray):
        return torch.from_numpy(row[:]).to(device)
    held = torch.empty(row.shape, dtype=torch.uint8, device=device)
    if device.type == "cpu":
        cast(FlatArrayOnDisk, row).read(0, held.numpy())
        return held
    for start in range(0, len(row), AT_ONCE):
        held[start : start + AT_ONCE] = torch.from_numpy(row[start : start + AT_ONCE])
    return held
