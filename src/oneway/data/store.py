"""The data next to the model: uint8 images and labels on the training device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oneway.data.dataset import Images


@dataclass(frozen=True)
class Store:
    """Images in device memory, looked up by index."""

    images: Tensor  # N×3×H×W uint8
    labels: Tensor  # N×H×W uint8

    @classmethod
    def hold(cls, images: Images, device: torch.device) -> Store:
        """Copies decoded images to the device, once."""
        pixels = torch.from_numpy(images.pixels).permute(0, 3, 1, 2).contiguous()
        return cls(pixels.to(device), torch.from_numpy(images.labels).to(device))

    def look_up(self, items: Tensor) -> tuple[Tensor, Tensor]:
        """Images and labels of a batch."""
        return self.images[items], self.labels[items]

    def __len__(self) -> int:
        return len(self.images)
