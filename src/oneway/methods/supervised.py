"""Labels alone."""

from __future__ import annotations

from torch import Tensor

from oneway import ops
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.models.roles import Models


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_s of each student."""
    for which in range(len(models.students)):
        yield Loss("supervised", supervised(models, batch, which))


def supervised(models: Models, batch: Batch, which: int = 0) -> Tensor:
    """Mean cross-entropy over labelled pixels."""
    x, y = batch.labelled()
    return ops.cross_entropy(models.student(x, which=which), y)
