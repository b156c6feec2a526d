"""A network that downsamples its input, for exported models of runs with `data.reduction`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Reduced(nn.Module):
    """A network behind average pooling, which reduces images as those of training were (`data.reduction`)."""

    def __init__(self, network: nn.Module, factor: int) -> None:
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, x: Tensor) -> Tensor:
        """Logits for N×3×H×W images, of cells that are `factor` times as large."""
        # Squares at the border are averaged over what they have of the image; exporters know no other way to do it.
        mean, share = (self._pool(values) for values in (x, torch.ones_like(x[:, :1])))
        logits: Tensor = self.network(mean / share)
        return logits

    def _pool(self, x: Tensor) -> Tensor:
        beyond = self.factor - 1
        return F.avg_pool2d(F.pad(x, (0, beyond, 0, beyond)), self.factor)


def factor_of(network: nn.Module) -> int:
    """The factor by which a network reduces height and width of its input; 1 for most."""
    return network.factor if isinstance(network, Reduced) else 1
