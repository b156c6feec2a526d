"""Networks that predict large images in tiles, and get what they get of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from oneway.models.sampling import linear


@dataclass(frozen=True)
class TilePosition:
    """The position of a tile in its image: its first row and column, and the size of the whole image, in pixels."""

    start: tuple[int, int]
    whole: tuple[int, int]

    def resize(self, x: Tensor, size: tuple[int, int], stride: int) -> Tensor:
        """Resize x from cells of twice the stride to cells of the stride, bilinearly, on the whole image's grid.

        Where the whole image has exactly twice as many cells, a tile needs no correction and x is returned as it is.
        """
        if all(-(-length // stride) == 2 * -(-length // (2 * stride)) for length in self.whole):
            return x
        matrices = []
        for cells, samples, start, length in zip(x.shape[-2:], size, self.start, self.whole, strict=True):
            ratio = -(-length // (2 * stride)) / -(-length // stride)
            place = (torch.arange(samples, device=x.device) + start // stride + 0.5) * ratio - 0.5
            place = (place - start // (2 * stride)).clamp(0, cells - 1)
            matrices.append(linear(torch.arange(cells, device=x.device) - place[:, None]).to(x.dtype))
        rows, columns = matrices
        return (rows @ x @ columns.mT).contiguous(memory_format=torch.channels_last)


@runtime_checkable
class TileableNetwork(Protocol):
    """A network whose prediction for a tile depends on the rest of the image through a coarse context map only."""

    def survey(self, x: Tensor) -> Tensor:
        """Features at stride 32 of an image, or of a tile."""
        ...

    def context(self, surveyed: Tensor) -> Tensor:
        """The context map of a whole image, at stride 32, from its surveyed features."""
        ...

    def within(self, x: Tensor, context: Tensor, position: TilePosition) -> Tensor:
        """Logits of a tile, from its section of the context map."""
        ...
