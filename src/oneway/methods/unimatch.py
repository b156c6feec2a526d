"""UniMatch (Yang et al., 2023): FixMatch with two strong views, and a third in which features are dropped.

Shapes: N images; K channels of all feature maps that the decoder receives.
"""

from __future__ import annotations

from torch import Tensor

from oneway.methods import supervised
from oneway.methods.consistency import divergence
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.models.roles import Models
from oneway.perturb import UNCHANGED


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_s, then α (¼ of each strong view's loss, and ½ of that of the perturbed features)."""
    yield from supervised.losses(models, batch, settings)
    x = batch.unlabelled()
    target = models.teacher(x)
    for view in range(2):
        yield Loss("consistency", strong_view(models, batch, settings, x, target, view), 0.25 * settings.alpha)
    yield Loss("features", perturbed_features(models, batch, settings, x, target), 0.5 * settings.alpha)


def strong_view(
    models: Models,
    batch: Batch,
    settings: Settings,
    x: Tensor,
    target: Tensor,
    view: int,
    features: Tensor | None = None,
) -> Tensor:
    """The loss of one perturbed view of the images x; the teacher's logits are the `target`."""
    perturbation = batch.perturbation(x, view)
    logits = models.student(perturbation.image(x), clean=False, features=features)
    return divergence(target, logits, perturbation, x, settings)


def perturbed_features(models: Models, batch: Batch, settings: Settings, x: Tensor, target: Tensor) -> Tensor:
    """The loss of clean images, half of whose feature channels are dropped before the decoder."""
    assert batch.selection is not None
    logits = models.student(x, clean=False, features=dropped(batch.selection.channels))
    return divergence(target, logits, UNCHANGED, x, settings)


def dropped(u: Tensor) -> Tensor:
    """N×K factors: 0 for dropped channels, each with probability ½, and 2 for the others."""
    return 2 * (u >= 0.5).to(u.dtype)
