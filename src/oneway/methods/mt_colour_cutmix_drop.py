"""Labelled images, a strong view and dropped features in one pass of the student; a mean teacher gives the targets.

In one pass, batch norm has the same statistics for labelled and unlabelled images. In a pass of their own, the few
labelled images would have statistics of their own, to which the network would overfit.
"""

from __future__ import annotations

import torch

from oneway.methods.consistency import divergence
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.methods.supervised import labelled_loss
from oneway.methods.unimatch import channel_dropout
from oneway.models.roles import Models
from oneway.perturb import UNCHANGED


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_s + α (loss of the strong view + ½ loss of dropped features), in one backward pass."""
    assert batch.selection is not None
    (x_l, y_l), x_u = batch.labelled(), batch.unlabelled()
    teacher, perturbation = models.teacher_on_side_stream(x_u), batch.perturbation(x_u, 0)

    factors = channel_dropout(batch.selection.channels)
    whole = torch.ones(len(x_l) + len(x_u), factors.shape[1], device=factors.device)
    images = torch.cat((x_l, perturbation.image(x_u), x_u))
    logits = models.student(images, features=torch.cat((whole, factors)))
    labelled, strong, dropped = logits.split((len(x_l), len(x_u), len(x_u)))
    target = teacher()
    yield (
        Loss("supervised", labelled_loss(labelled, y_l, settings)),
        Loss("consistency", divergence(target, strong, perturbation, x_u, settings), settings.alpha),
        Loss("features", divergence(target, dropped, UNCHANGED, x_u, settings), 0.5 * settings.alpha),
    )
