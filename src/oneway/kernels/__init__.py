"""Losses, perturbation and crops, fused for the GPU (Triton). They promise what their plain versions promise.

Losses read stride-4 logits and never make a full-resolution tensor of classes. Needs Triton, so import it only where
`torch.cuda.is_available()`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oneway.kernels.crops import fused_crops, fused_label_crops
from oneway.kernels.cross_entropy import fused_cross_entropy
from oneway.kernels.masked_kl import fused_masked_kl
from oneway.kernels.perturb import fused_perturb
from oneway.kernels.warp import Warp

__all__ = [
    "Warp",
    "fused_crops",
    "fused_cross_entropy",
    "fused_label_crops",
    "fused_masked_kl",
    "fused_perturb",
    "supports",
]

LARGEST_RATIO = 8
"""A thread holds one column of the pixels between two cells, so there cannot be many."""


def supports(logits: Tensor, pixels: tuple[int, int]) -> bool:
    """Whether the fused losses can take N×C×h×w logits to H×W pixels."""
    return (
        logits.is_cuda
        and logits.ndim == 4
        and logits.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and all(c <= p <= LARGEST_RATIO * c for p, c in zip(pixels, logits.shape[2:], strict=True))
    )
