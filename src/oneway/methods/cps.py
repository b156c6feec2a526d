"""Cross pseudo supervision (Chen et al., 2021), with CutMix: two students learn from each other's predictions."""

from __future__ import annotations

from torch import Tensor

from oneway.methods import supervised
from oneway.methods.consistency import divergence
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.models.roles import Models


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_s of both students, then α H(y₂, h₁(T(x))) and α H(y₁, h₂(T(x))), one after the other."""
    yield from supervised.losses(models, batch, settings)
    for learner, other in ((0, 1), (1, 0)):
        yield Loss("consistency", cross_supervision(models, batch, settings, learner, other), settings.alpha)


def cross_supervision(models: Models, batch: Batch, settings: Settings, learner: int, other: int) -> Tensor:
    """The learner's predictions of mixed images, against the other's mixed hard predictions of the unmixed images."""
    x_u = batch.unlabelled()
    perturbation = batch.perturbation(x_u, 0)
    target = models.teacher(x_u, which=other)
    logits = models.student(perturbation.image(x_u), clean=False, which=learner)
    return divergence(target, logits, perturbation, x_u, settings)
