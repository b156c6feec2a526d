"""Supervised losses against class imbalance: class weights, Dice, hard pixels; in plain PyTorch.

Shapes: N images of H×W pixels, C classes, logits at h×w; or N×C logits and N labels of whole images.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from oneway.common.terms import IGNORE
from oneway.ops.collective import divided, total, total_with_gradient
from oneway.ops.losses import pixels_of, upsample

HARDEST = 0.25
"""Share of the labelled pixels that count in online hard example mining."""


def weight_of_labels(labels: Tensor, weights: Tensor) -> Tensor:
    """The weight of each label's class, of the labels' shape; arbitrary for ignored labels."""
    return weights[labels.clamp(max=len(weights) - 1)]


def dice(logits: Tensor, labels: Tensor) -> Tensor:
    """1 − 2 Σ p_c y_c / (Σ p_c + Σ y_c) over all labelled pixels of a batch, averaged over the classes present in it.

    Every class counts alike, however few of the pixels it has; 0 where no pixel is labelled.
    """
    p = _at_labels(logits, labels).softmax(dim=1)
    places = torch.arange(p.shape[1], device=p.device).view(-1, *[1] * (labels.ndim - 1))
    y = labels[:, None] == places
    over_pixels = (0, *range(2, p.ndim))
    counts = total(y.sum(over_pixels))
    shared = torch.where(y, p, 0).sum(over_pixels)
    predicted = torch.where((labels != IGNORE)[:, None], p, 0).sum(over_pixels)
    shared, predicted = total_with_gradient(torch.stack((shared, predicted)))
    losses = 1 - 2 * shared / (predicted + counts).clamp(min=torch.finfo(p.dtype).tiny)
    present = counts > 0
    return divided(torch.where(present, losses, 0).sum() / present.sum().clamp(min=1))


def hardest_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over the hardest of the labelled pixels, a share `HARDEST` of them; 0 where none is labelled.

    The number of labelled pixels is known on the device alone, and a shape cannot depend on it. So as many losses are
    selected as if all pixels were labelled, with ignored pixels last, and only the share of the labelled ones counts.
    """
    losses = F.cross_entropy(_at_labels(logits, labels), labels, ignore_index=IGNORE, reduction="none").flatten()
    labelled = (labels != IGNORE).flatten()
    largest = torch.where(labelled, losses, -1).topk(math.ceil(HARDEST * len(losses))).values
    kept = (HARDEST * labelled.sum()).ceil()
    counted = torch.arange(len(largest), device=largest.device) < kept
    return torch.where(counted, largest, 0).sum() / kept.clamp(min=1)


def _at_labels(logits: Tensor, labels: Tensor) -> Tensor:
    return upsample(logits, pixels_of(labels) if labels.ndim == 3 else (1, 1))
