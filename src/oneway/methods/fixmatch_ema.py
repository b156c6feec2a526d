"""FixMatch (Sohn et al., 2020) for image classification: all images in one pass, so that they share batch norm."""

from __future__ import annotations

import torch

from oneway.methods.consistency import divergence
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.methods.supervised import labelled_loss
from oneway.models.roles import Models


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_s + α D(weak, strong): the student's predictions of the clean images are the targets; in one backward pass."""
    (x_l, y_l), x_u = batch.labelled(), batch.unlabelled()
    perturbation = batch.perturbation(x_u, 0)
    logits = models.student(torch.cat((x_l, x_u, perturbation.image(x_u))))
    labelled, weak, strong = logits.split((len(x_l), len(x_u), len(x_u)))
    yield (
        Loss("supervised", labelled_loss(labelled, y_l, settings)),
        Loss("consistency", divergence(weak.detach(), strong, perturbation, x_u, settings), settings.alpha),
    )
