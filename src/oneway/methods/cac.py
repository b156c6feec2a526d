"""CAC (Lai et al., 2021): the features of a place should not depend on the context that a crop happens to have.

Shapes: N images of H×W pixels, in cells of CELL×CELL.
"""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from oneway import ops
from oneway.methods import supervised
from oneway.methods.interface import Batch, Loss, Losses, Pair, Settings
from oneway.models.projector import CELL
from oneway.models.roles import Models


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_s, then α times the directional contrastive loss, in either direction."""
    yield from supervised.losses(models, batch, settings)
    yield Loss("consistency", context_aware(models, batch, settings), settings.alpha)


def context_aware(models: Models, batch: Batch, settings: Settings) -> Tensor:
    """Each crop learns from the other where the other is more certain; negatives come from all crops of the batch."""
    assert batch.pair is not None
    pair = batch.pair()
    first = crop_cells(models, batch, pair.first, view=0)
    second = crop_cells(models, batch, pair.second, view=1)
    negatives = ops.chosen((first, second), pair.places)

    there, back = (pair.down, pair.right), (-pair.down, -pair.right)
    in_second = ops.shifted(inside_image(pair), *back)  # cells of the second that the first shows too
    in_first = ops.shifted(in_second, *there)
    l_dc = partial(ops.directional_contrast, negatives=negatives, confidence=settings.confidence)
    return l_dc(first, second.shifted(*there), in_first) + l_dc(second, first.shifted(*back), in_second)


def crop_cells(models: Models, batch: Batch, x: Tensor, view: int) -> ops.Cells:
    """The student's labels and projected features of the cells of N crops, whose colours are perturbed."""
    (phi,) = models.heads
    logits, features = models.features(batch.perturbation(x, view).image(x))
    cells = x.shape[-2] // CELL, x.shape[-1] // CELL
    # The classifier is linear: the mean logits of a cell are those of its mean features.
    return ops.cells_of(F.adaptive_avg_pool2d(logits, cells), phi(F.adaptive_avg_pool2d(features, cells)))


def inside_image(pair: Pair) -> Tensor:
    """N×h×w: whether all pixels of a cell of the first crop are inside the image."""
    return F.max_pool2d((~pair.inside).float(), CELL) == 0
