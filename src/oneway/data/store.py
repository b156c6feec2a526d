"""The data next to the model: uint8 images and labels on the training device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oneway.data.dataset import Samples


@dataclass(frozen=True)
class Store:
    """Samples in device memory, looked up by index."""

    inputs: Tensor  # N×3×H×W uint8 images, or N×2 float32 points
    labels: Tensor  # N×H×W or N uint8

    @classmethod
    def hold(cls, samples: Samples, device: torch.device) -> Store:
        """Copies decoded samples to the device, once."""
        inputs = torch.from_numpy(samples.inputs)
        if inputs.ndim == 4:
            inputs = inputs.permute(0, 3, 1, 2).contiguous()
        return cls(inputs.to(device), torch.from_numpy(samples.labels).to(device))

    def look_up(self, items: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels of a batch."""
        return self.inputs[items], self.labels[items]
