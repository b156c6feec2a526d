"""Losses between stride-4 logits and full-resolution targets, in plain PyTorch.

Shapes: N images of H×W pixels, C classes, logits at h×w. Where there is one prediction for a whole image (N×C logits,
N labels), the same functions average over images instead of pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oneway.ops.cast import at_least_float32
from oneway.ops.collective import divided, total

Pixels = tuple[int, int]


def upsample(logits: Tensor, pixels: Pixels) -> Tensor:
    """N×C×h×w logits at H×W pixels, bilinearly, in at least single precision; N×C logits as they are."""
    logits = at_least_float32(logits)
    return logits if logits.ndim == 2 else F.interpolate(logits, pixels, mode="bilinear", align_corners=False)


def pixels_of(x: Tensor) -> Pixels:
    """Height and width of a tensor whose last axes they are."""
    return x.shape[-2], x.shape[-1]


def kl_map(target: Tensor, log_prediction: Tensor) -> Tensor:
    """N×H×W: KL(target ‖ prediction) of each pixel, from N×C×H×W probabilities and log-probabilities; or N of N×C."""
    target = target.clamp(min=torch.finfo(target.dtype).tiny)
    return (target * (target.log() - log_prediction)).sum(dim=1)


def masked_kl(target: Tensor, logits: Tensor, valid: Tensor | None, weight: Tensor | None = None) -> Tensor:
    """Mean over valid pixels of KL(target ‖ softmax(logits)); 0 where none is valid.

    Args:
        target: N×C×H×W probabilities.
        logits: N×C×h×w.
        valid: N×H×W, which pixels count; None: every one.
        weight: N×H×W factors of the pixels' losses; they do not change how many pixels count.
    """
    log_prediction = upsample(logits, pixels_of(target)).log_softmax(dim=1)
    if valid is not None:
        target = torch.where(valid[:, None], target, 1)  # what is masked out must not divide by zero in the gradient
    return mean(kl_map(target, log_prediction), valid, weight)


def confident_l2(target: Tensor, logits: Tensor, valid: Tensor | None, confidence: float) -> Tensor:
    """Mean of ‖hard(target) − softmax(logits)‖² over valid pixels where the target's maximum exceeds `confidence`."""
    certainty, winner = target.max(dim=1)
    hard = F.one_hot(winner, target.shape[1]).movedim(-1, 1)
    distance = (hard - upsample(logits, pixels_of(target)).softmax(dim=1)).square().sum(dim=1)
    confident = certainty > confidence
    return mean(distance, confident if valid is None else confident & valid)


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the predictions, at their own resolution."""
    log_p = at_least_float32(logits).log_softmax(dim=1)  # autocast would do so on a GPU alone
    return divided(-(log_p.exp() * log_p).sum(dim=1).mean())


def mean(values: Tensor, counted: Tensor | None, weight: Tensor | None = None) -> Tensor:
    """Mean of the values that count, each times its weight; 0 where none counts. For a share: its part of the mean."""
    values = values if weight is None else weight * values
    if counted is None:
        return divided(values.mean())
    return torch.where(counted, values, 0).sum() / total(counted.sum()).clamp(min=1)
