"""What every network of images shares: RGB in [0, 1] goes in, and the normalisation is part of the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from oneway.models.sampling import linear

Channels = tuple[float, float, float]

IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION: Channels = (0.229, 0.224, 0.225)


class ImageModel(nn.Module):
    """A base that keeps mean and deviation of the training images beside the weights."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Channels = IMAGENET_MEAN, deviation: Channels = IMAGENET_DEVIATION) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(3, 1, 1))

    def normalise(self, x: Tensor) -> Tensor:
        """Images with zero mean and unit deviation in each channel, as encoders want them."""
        return (x - self.mean) / self.deviation


@dataclass(frozen=True)
class Part:
    """Which part of an image a tile is: its first row and column, and the size of the whole, in pixels."""

    start: tuple[int, int]
    whole: tuple[int, int]

    def resize(self, x: Tensor, size: tuple[int, int], stride: int) -> Tensor:
        """Cells of twice the stride to those of the stride, bilinearly, where they come to lie in the whole image.

        Where the whole has twice as many, this is what any part does by itself, and x is returned as it is.
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
class SeenInParts(Protocol):
    """A network whose prediction for a part of an image depends on the whole by a coarse map only."""

    def survey(self, x: Tensor) -> Tensor:
        """Features at stride 32 of an image, or of a part of one."""
        ...

    def context(self, surveyed: Tensor) -> Tensor:
        """What the features of a whole image tell its parts, at stride 32."""
        ...

    def within(self, x: Tensor, context: Tensor, part: Part) -> Tensor:
        """Logits of a part of an image, given its part of the context."""
        ...
