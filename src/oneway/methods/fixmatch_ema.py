"""FixMatch (Sohn et al., 2020) for image classification: all images in one pass, so that they share batch norm."""

from __future__ import annotations

import torch

from oneway.methods.consistency import divergence
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.methods.supervised import labelled_loss
from oneway.models.roles import Models


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_s + α D(clean, perturbed), where the student's clean predictions are the targets; in one backward pass."""
    (x_l, y), x = batch.labelled(), batch.unlabelled()
    perturbation = batch.perturbation(x, 0)
    logits = models.student(torch.cat((x_l, x, perturbation.image(x))))
    labelled, clean, strong = logits.split((len(x_l), len(x), len(x)))
    yield (
        Loss("supervised", labelled_loss(labelled, y, settings)),
        Loss("consistency", divergence(clean.detach(), strong, perturbation, x, settings), settings.alpha),
    )
