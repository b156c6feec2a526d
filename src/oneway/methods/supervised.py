"""Supervised training: the labelled images alone."""

from __future__ import annotations

from torch import Tensor

from oneway import ops
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.models.roles import Models


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_s of each student."""
    for which in range(len(models.students)):
        yield Loss("supervised", supervised(models, batch, settings, which))


def supervised(models: Models, batch: Batch, settings: Settings, which: int = 0) -> Tensor:
    """Mean cross-entropy over labelled pixels, balanced as the settings say."""
    x, y = batch.labelled()
    return labelled_loss(models.student(x, which=which), y, settings)


def labelled_loss(logits: Tensor, y: Tensor, settings: Settings) -> Tensor:
    """The loss of predictions for labelled images."""
    match settings.balance:
        case "none":
            return ops.cross_entropy(logits, y)
        case "frequency":
            assert settings.class_weights is not None
            return ops.cross_entropy(logits, y, weight=ops.weight_of_labels(y, settings.class_weights))
        case "dice":
            return ops.cross_entropy(logits, y) + ops.dice(logits, y)
        case "ohem":
            return ops.hardest_cross_entropy(logits, y)
