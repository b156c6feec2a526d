"""Consistency of two predictions for one image: as it is, and perturbed. Every variant is a row read by one function.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from oneway.losses import masked_kl, upsample
from oneway.methods import Variant
from oneway.models.norm import population_statistics, untracked_statistics
from oneway.perturb import Perturbation


def consistency_loss(
    variant: Variant,
    student: nn.Module,
    teacher: nn.Module,
    x: Tensor,
    perturbation: Perturbation,
    update_on_perturbed: bool = False,
) -> Tensor:
    """L_c = D(T^G(h(x)), h(T(x))), averaged over valid pixels.

    Batch-norm statistics follow clean inputs of the student, and its perturbed ones only with `update_on_perturbed`.
    """
    clean = branch(student, teacher, x, learns=variant.clean_learns, update_statistics=True)
    target = perturbation.prediction(upsample(clean, (x.shape[-2], x.shape[-1])).softmax(dim=1))
    del clean  # the warped copy is all the loss needs
    perturbed = branch(
        student,
        teacher,
        perturbation.image(x),
        learns=variant.perturbed_learns,
        update_statistics=update_on_perturbed,
    )
    return masked_kl(target, perturbed, perturbation.valid)


def branch(student: nn.Module, teacher: nn.Module, x: Tensor, learns: bool, update_statistics: bool) -> Tensor:
    """Logits of the student if the branch learns; otherwise of the teacher, which keeps no activations."""
    if not learns:
        with torch.no_grad(), population_statistics(teacher):
            return teacher(x)
    if update_statistics:
        return student(x)
    with untracked_statistics(student):
        return student(x)
