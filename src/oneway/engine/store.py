"""The data next to the model: every pixel of every image in one long row, and where each image begins.

Images of different sizes need nothing special, and a batch is never gathered: crops are sampled from the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oneway.engine.boxes import Box

AT_ONCE = 2**24
"""Pixels on their way from the disk to the device."""


Array = npt.NDArray[Any]


class FlatArray(Protocol):
    """The values of all images, one image after another: an array in memory, or one that is read when sliced."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, part: Any, /) -> Array: ...


class FlatArrayOnDisk(FlatArray, Protocol):
    """One that can be read into an array."""

    def read(self, start: int, into: Array) -> None:
        """Fills an array with the values from a place onwards."""


Choose = Callable[[tuple[int, int]], Box]
"""Chooses a part of an image by its height and width."""


class Part(Protocol):
    """A part of an image."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the whole image."""

    @property
    def box(self) -> Box: ...
    @property
    def pixels(self) -> Array:
        """H×W×3 uint8, those of the box."""


class Decoders(Protocol):
    """Decode images of a pool while others are waited for. Each has a slot, of which there are so many."""

    def begin(self, slot: int, image: int, choose: Choose) -> None:
        """Has an image decoded; what was asked for in this slot before is forgotten, and its pixels are gone."""

    def result(self, slot: int) -> Part:
        """Waits for what was begun: the part of the image, or of another one where it cannot be decoded.

        Which other one depends on the seed alone. The pixels stay until the next image is begun in this slot.
        """

    def close(self) -> None:
        """Ends without waiting for what is decoded."""


class Pool(Protocol):
    """Images without labels that are decoded when they are asked for; `data.pool.Pool` is one."""

    @property
    def workers(self) -> int:
        """How many may well decode at the same time."""

    def __len__(self) -> int: ...
    def decoders(self, seed: int, slots: int, pixels: int) -> Decoders:
        """With so many slots, for parts of at most so many pixels."""

    def close(self) -> None:
        """Ends what is waited for; nothing is read any more."""


class Images(Protocol):
    """Decoded images as a reader gives them; `data.dataset.Samples` are such."""

    @property
    def pixels(self) -> FlatArray:
        """P×3 uint8 in RGB, or P×2 float32: points, a pixel each."""

    @property
    def labels(self) -> FlatArray:
        """Of the first images, uint8: one for each pixel, or one for each image."""

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """N×2, height and width."""

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """N, each image's first pixel."""

    @property
    def dense(self) -> bool:
        """Whether it is pixels that have labels."""

    @property
    def pool(self) -> Pool | None:
        """Further images, whose numbers follow on those of the others."""


@dataclass(frozen=True)
class Store:
    """Samples on a device."""

    pixels: Tensor  # P×3 uint8, or P×2 float32 points
    labels: Tensor  # of the first samples, uint8: one for each pixel, or one for each sample
    start: Tensor  # N int64, each sample's first pixel
    size: Tensor  # N×2 int64, height and width
    dense: bool
    """Whether it is pixels that have labels."""

    box: Tensor | None = None  # N×4 int64 (see Box), of which part of a sample the pixels are; None: they are all there

    @classmethod
    def hold(cls, samples: Images, device: torch.device) -> Store:
        """Decoded samples on the device; nothing is copied where they are there already."""
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
