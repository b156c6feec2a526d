"""UniMatch (Yang et al., 2023): FixMatch with two strong views, and a third of perturbed features.

As in the paper, w is the weak view (the clean image), s a strong one, and fp the view with feature perturbation.
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
    x_w = batch.unlabelled()
    p_w = models.teacher(x_w)
    for view in range(2):
        yield Loss("consistency", strong_view(models, batch, settings, x_w, p_w, view), 0.25 * settings.alpha)
    yield Loss("features", feature_perturbation(models, batch, settings, x_w, p_w), 0.5 * settings.alpha)


def strong_view(
    models: Models,
    batch: Batch,
    settings: Settings,
    x_w: Tensor,
    p_w: Tensor,
    view: int,
    features: Tensor | None = None,
) -> Tensor:
    """H(p_w, p_s) of a strong view, by the settings' divergence; predictions are logits."""
    perturbation = batch.perturbation(x_w, view)
    p_s = models.student(perturbation.image(x_w), clean=False, features=features)
    return divergence(p_w, p_s, perturbation, x_w, settings)


def feature_perturbation(models: Models, batch: Batch, settings: Settings, x_w: Tensor, p_w: Tensor) -> Tensor:
    """H(p_w, p_fp), where half of the weak view's feature channels do not reach the decoder."""
    assert batch.selection is not None
    p_fp = models.student(x_w, clean=False, features=channel_dropout(batch.selection.channels))
    return divergence(p_w, p_fp, UNCHANGED, x_w, settings)


def channel_dropout(u: Tensor) -> Tensor:
    """N×K factors: 0 for dropped channels, each with probability ½, and 2 for the others."""
    return 2 * (u >= 0.5).to(u.dtype)
