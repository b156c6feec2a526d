"""Bilinear interpolation, as a module, so that a network's own can be exchanged for a faster one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Resize(nn.Module):
    """Bilinear interpolation between pixel centres, and the sum that may follow."""

    def forward(self, x: Tensor, size: tuple[int, int], addend: Tensor | None = None) -> Tensor:
        # Autocast would take it to single precision, and with it every sum and norm that follows.
        with torch.autocast(x.device.type, enabled=False):
            x = F.interpolate(x, size, mode="bilinear", align_corners=False)
        return x if addend is None else x + addend
