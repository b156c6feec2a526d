"""The colours of a divergence: one fixed scale, so that pictures of different models and draws compare."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from oneway.data.dataset import Bytes

TOP = 4.0
"""Nats from which a pixel has the last colour: a class held for certain has become one with a probability of 2 %."""

LEVELS = 255
"""Colours of the scale; the 256th value of a byte is free to mean that there is nothing to measure."""

COLOUR_MAP = "inferno"


def levels(kl: Tensor) -> Tensor:
    """The colour of each divergence, from 0 to LEVELS − 1, growing with its root: small ones differ visibly too."""
    return ((kl / TOP).clamp(0, 1).sqrt() * (LEVELS - 1)).round().to(torch.uint8)


def colours() -> Bytes:
    """LEVELS×3: the scale, in RGB."""
    from oneway.common.drawing import colormaps

    return np.round(255 * colormaps[COLOUR_MAP](np.linspace(0, 1, LEVELS))[:, :3]).astype(np.uint8)
