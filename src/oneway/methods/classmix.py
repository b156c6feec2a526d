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
    """λ H(Y, h(X)): a mean over all pixels, where λ is the share of pixels above τ."""
    assert batch.selection is not None
    x_u = batch.unlabelled()
    p_t, _ = ops.moved(models.teacher(x_u), UNCHANGED, ops.pixels_of(x_u))
    p, y_t = p_t.max(dim=1)
    mask = ops.half_of_classes(y_t, batch.selection.classes, classes=p_t.shape[1])
    x, y = ops.paste(x_u, mask), ops.paste(y_t, mask)
    confident = ops.mean_of_all((ops.paste(p, mask) > settings.confidence).to(x.dtype))
    logits = models.student(batch.perturbation(x, 0).image(x), clean=False)
    return confident * ops.cross_entropy(logits, y)
