"""AugSeg (Zhao et al., 2023): random intensities, and CutMix with labelled images where the teacher is unsure.

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
    """Images with labels or pseudo-labels, and their certainty."""

    x: Tensor  # N×3×H×W
    y: Tensor  # N×H×W int64
    certainty: Tensor  # N×H×W


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_s, then α H(y, h(x)) of mixed images with their mixed labels."""
    yield from supervised.losses(models, batch, settings)
    yield Loss("consistency", mixed_cross_entropy(models, batch, settings), settings.alpha)


def mixed_cross_entropy(models: Models, batch: Batch, settings: Settings) -> Tensor:
    """A mean over all labelled pixels, where those below the confidence count as zeros."""
    x = batch.unlabelled()
    p, _ = ops.moved(models.teacher(x), UNCHANGED, ops.pixels_of(x))
    certainty, y = p.max(dim=1)
    unlabelled = Labelled(batch.perturbation(x, 0).image(x), y, certainty)
    mixed = adaptive_cutmix(unlabelled, sureness(p), batch)
    logits = models.student(mixed.x, clean=False)
    return ops.cross_entropy(logits, mixed.y, weight=(mixed.certainty > settings.confidence).to(p.dtype))


def adaptive_cutmix(unlabelled: Labelled, sure: Tensor, batch: Batch) -> Labelled:
    """CutMix in two steps: labelled images into unlabelled ones, mostly into unsure ones; then the results in pairs."""
    assert batch.augseg is not None
    augseg, size = batch.augseg, ops.pixels_of(unlabelled.x)
    x_l, y_l = batch.labelled()
    others = torch.arange(len(unlabelled.x), device=x_l.device) % len(x_l)  # there may be fewer
    labelled = Labelled(x_l[others], y_l[others], torch.ones_like(unlabelled.certainty))
    piece = ops.square_mask(augseg.labelled, size) & (augseg.u > sure)[:, None, None]
    injected = pasted(labelled, unlabelled, piece)
    rolled = Labelled(*(each.roll(-(len(each) // 2), dims=0) for each in injected))
    return pasted(rolled, unlabelled, ops.square_mask(augseg.mixed, size))


def pasted(source: Labelled, target: Labelled, mask: Tensor) -> Labelled:
    """Paste the pixels of the source that the N×H×W mask selects onto the target."""
    return Labelled(
        torch.where(mask[:, None], source.x, target.x),
        torch.where(mask, source.y, target.y),
        torch.where(mask, source.certainty, target.certainty),
    )


def sureness(p: Tensor) -> Tensor:
    """N: the mean over pixels of (1 − entropy / ln C) times the largest probability."""
    entropy = -(p * p.clamp(min=torch.finfo(p.dtype).tiny).log()).sum(dim=1)
    return ((1 - entropy / math.log(p.shape[1])) * p.amax(dim=1)).mean(dim=(1, 2))
