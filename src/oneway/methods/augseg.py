"""AugSeg (Zhao et al., 2023): random intensities, and CutMix that injects labelled images where the teacher is unsure.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from oneway import ops
from oneway.methods import supervised
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.models.roles import Models
from oneway.perturb import UNCHANGED


class Labelled(NamedTuple):
    """Images with labels or pseudo-labels, and the probabilities of these."""

    x: Tensor  # N×3×H×W
    y: Tensor  # N×H×W int64
    p: Tensor  # N×H×W


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_x, then α L_u."""
    yield from supervised.losses(models, batch, settings)
    yield Loss("consistency", unsupervised(models, batch, settings), settings.alpha)


def unsupervised(models: Models, batch: Batch, settings: Settings) -> Tensor:
    """L_u: cross-entropy with mixed pseudo-labels, a mean over all labelled pixels; those below τ count as zeros."""
    x_u = batch.unlabelled()
    p_t, _ = ops.moved(models.teacher(x_u), UNCHANGED, ops.pixels_of(x_u))
    p, y = p_t.max(dim=1)
    strong = Labelled(batch.perturbation(x_u, 0).image(x_u), y, p)
    mixed = label_injecting_cutmix(strong, confidence_score(p_t), batch)
    logits = models.student(mixed.x, clean=False)
    return ops.cross_entropy(logits, mixed.y, weight=(mixed.p > settings.confidence).to(p.dtype))


def label_injecting_cutmix(unlabelled: Labelled, rho: Tensor, batch: Batch) -> Labelled:
    """Pieces of labelled images are pasted into unlabelled ones with a low ρ, and pieces of the results into all."""
    assert batch.augseg is not None
    augseg, size = batch.augseg, ops.pixels_of(unlabelled.x)
    x_l, y_l = batch.labelled()
    places = torch.arange(len(unlabelled.x), device=x_l.device) % len(x_l)  # there may be fewer labelled images
    labelled = Labelled(x_l[places], y_l[places], torch.ones_like(unlabelled.p))
    injected = ops.square_mask(augseg.labelled, size) & (augseg.u > rho)[:, None, None]
    candidates = paste(labelled, unlabelled, injected)
    others = Labelled(*(each.roll(-(len(each) // 2), dims=0) for each in candidates))
    return paste(others, unlabelled, ops.square_mask(augseg.mixed, size))


def paste(source: Labelled, target: Labelled, mask: Tensor) -> Labelled:
    """Paste the pixels of the source that the N×H×W mask selects onto the target."""
    return Labelled(
        torch.where(mask[:, None], source.x, target.x),
        torch.where(mask, source.y, target.y),
        torch.where(mask, source.p, target.p),
    )


def confidence_score(p: Tensor) -> Tensor:
    """ρ of N images: the mean over pixels of (1 − entropy / ln C) times the largest probability."""
    entropy = -(p * p.clamp(min=torch.finfo(p.dtype).tiny).log()).sum(dim=1)
    return ((1 - entropy / math.log(p.shape[1])) * p.amax(dim=1)).mean(dim=(1, 2))
