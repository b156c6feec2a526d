"""The base of networks for images: input is RGB in [0, 1], and the normalisation is part of the network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Channels = tuple[float, float, float]

IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION: Channels = (0.229, 0.224, 0.225)


class ImageModel(nn.Module):
    """A module with mean and deviation of the training images among its buffers."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Channels = IMAGENET_MEAN, deviation: Channels = IMAGENET_DEVIATION) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(3, 1, 1))

    def normalise(self, x: Tensor) -> Tensor:
        """Images with zero mean and unit deviation in each channel, as encoders want them."""
        return (x - self.mean) / self.deviation
