"""ClassMix (Olsson et al., 2021): objects that the teacher sees in one image are pasted onto another.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

from torch import Tensor

from oneway import ops
from oneway.methods import supervised
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.models.roles import Models
from oneway.perturb import UNCHANGED


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_s, then α λ H(Y, h(X)) of the mixed images X with their pseudo-labels Y."""
    yield from supervised.losses(models, batch, settings)
    yield Loss("consistency", mixed_cross_entropy(models, batch, settings), settings.alpha)


def mixed_cross_entropy(models: Models, batch: Batch, settings: Settings) -> Tensor:
    """λ H(Y, h(X)): a mean over all pixels, where λ is the share of pixels above the confidence."""
    assert batch.selection is not None
    x = batch.unlabelled()
    prediction, _ = ops.moved(models.teacher(x), UNCHANGED, ops.pixels_of(x))
    certainty, labels = prediction.max(dim=1)
    pasted = ops.half_of_classes(labels, batch.selection.classes, classes=prediction.shape[1])
    x, y = ops.paste(x, pasted), ops.paste(labels, pasted)
    sure = ops.mean_of_all((ops.paste(certainty, pasted) > settings.confidence).to(x.dtype))
    logits = models.student(batch.perturbation(x, 0).image(x), clean=False)
    return sure * ops.cross_entropy(logits, y)
