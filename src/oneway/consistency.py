"""Consistency of two predictions for one image. Every variant is a row read by one function.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from oneway.losses import upsample
from oneway.methods import Variant
from oneway.models.norm import population_statistics, untracked_statistics
from oneway.perturb import Perturbation, moved

Divergence = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""D(target probabilities, logits, valid pixels)."""


def consistency_loss(
    variant: Variant,
    divergence: Divergence,
    student: nn.Module,
    teacher: nn.Module,
    x: Tensor,
    perturbation: Perturbation,
    other: Perturbation | None = None,
    update_on_perturbed: bool = False,
) -> tuple[Tensor, Tensor]:
    """L_c = D(T^G(h(x)), h(T(x))) averaged over valid pixels, and the second branch's logits.

    Where both inputs are perturbed, the first sees T'(x) of `other`, and its prediction is brought back before T^G.
    Batch-norm statistics follow clean inputs of the student, and its perturbed ones only with `update_on_perturbed`.
    """
    first = Perturbation() if variant.first_is_clean else other
    assert first is not None, "a variant that perturbs both inputs needs two perturbations"
    update = variant.first_is_clean or update_on_perturbed
    logits = branch(student, teacher, first.image(x), variant.first_learns, update)
    restored, valid = first.undo(upsample(logits, x).softmax(dim=1))
    target = perturbation.prediction(restored)
    valid = moved(valid, perturbation) if target.ndim == 4 else None
    del logits, restored  # the target is all the loss needs; a teacher's predictions are freed here

    second = branch(student, teacher, perturbation.image(x), variant.second_learns, update_on_perturbed)
    return divergence(target, second, valid), second


def branch(student: nn.Module, teacher: nn.Module, x: Tensor, learns: bool, update_statistics: bool) -> Tensor:
    """Logits of the student if the branch learns; otherwise of the teacher, which keeps no activations."""
    if not learns:
        with torch.no_grad(), population_statistics(teacher):
            return teacher(x)
    if update_statistics:
        return student(x)
    with untracked_statistics(student):
        return student(x)
