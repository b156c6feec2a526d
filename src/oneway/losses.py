"""Losses between stride-4 logits and full-resolution targets. The reference for every faster way to compute them.

Shapes: N images of H×W pixels, C classes, logits at h×w.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oneway.data.dataset import IGNORE


def upsample(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """N×C×h×w logits at full resolution, bilinearly, in at least single precision."""
    return F.interpolate(_at_least_float32(logits), size, mode="bilinear", align_corners=False)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over the pixels of N×H×W labels that are not ignored; 0 where all are."""
    logits = upsample(logits, (labels.shape[-2], labels.shape[-1]))
    total = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    return total / (labels != IGNORE).sum().clamp(min=1)


def masked_kl(target: Tensor, logits: Tensor, valid: Tensor | None) -> Tensor:
    """Mean over valid pixels of KL(target ‖ softmax(logits)); 0 where none is valid.

    `target` holds N×C×H×W probabilities, `valid` is N×H×W (None: every pixel).
    """
    log_student = upsample(logits, (target.shape[-2], target.shape[-1])).log_softmax(dim=1)
    divergence = (torch.xlogy(target, target) - target * log_student).sum(dim=1)
    if valid is None:
        return divergence.mean()
    return torch.where(valid, divergence, 0).sum() / valid.sum().clamp(min=1)


def _at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
