"""Losses between stride-4 logits and full-resolution targets. The reference for every faster way to compute them.

Shapes: N images of H×W pixels, C classes, logits at h×w. Where there is one prediction for a whole image (N×C logits,
N labels), the same functions average over images instead of pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oneway.data.dataset import IGNORE


def upsample(logits: Tensor, like: Tensor) -> Tensor:
    """N×C×h×w logits at the resolution of `like` (…×H×W), bilinearly, in at least single precision."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if logits.ndim == 2:
        return logits
    return F.interpolate(logits, (like.shape[-2], like.shape[-1]), mode="bilinear", align_corners=False)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over the N×H×W (or N) labels that are not ignored; 0 where all are."""
    total = F.cross_entropy(upsample(logits, labels), labels, ignore_index=IGNORE, reduction="sum")
    return total / (labels != IGNORE).sum().clamp(min=1)


def kl_map(target: Tensor, log_prediction: Tensor) -> Tensor:
    """N×H×W: KL(target ‖ prediction) of each pixel, from N×C×H×W probabilities and log-probabilities; or N of N×C."""
    target = target.clamp(min=torch.finfo(target.dtype).tiny)
    return (target * (target.log() - log_prediction)).sum(dim=1)


def masked_kl(target: Tensor, logits: Tensor, valid: Tensor | None) -> Tensor:
    """Mean over valid pixels of KL(target ‖ softmax(logits)); 0 where none is valid.

    `target` holds N×C×H×W probabilities, `valid` is N×H×W (None: every pixel).
    """
    log_second = upsample(logits, target).log_softmax(dim=1)
    if valid is not None:
        target = torch.where(valid[:, None], target, 1)  # what is masked out must not divide by zero in the gradient
    return _mean(kl_map(target, log_second), valid)


def confident_l2(target: Tensor, logits: Tensor, valid: Tensor | None, confidence: float) -> Tensor:
    """Mean of ‖hard(target) − softmax(logits)‖² over valid pixels where the target's maximum exceeds `confidence`."""
    certainty, winner = target.max(dim=1)
    hard = F.one_hot(winner, target.shape[1]).movedim(-1, 1)
    distance = (hard - upsample(logits, target).softmax(dim=1)).square().sum(dim=1)
    confident = certainty > confidence
    return _mean(distance, confident if valid is None else confident & valid)


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the predictions, at their own resolution."""
    log_p = logits.log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1).mean()


def _mean(values: Tensor, counted: Tensor | None) -> Tensor:
    if counted is None:
        return values.mean()
    return torch.where(counted, values, 0).sum() / counted.sum().clamp(min=1)
