"""Consistency of two predictions for one image. Every variant is a row read by one function.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from oneway.losses import upsample
from oneway.methods import Variant
from oneway.models.norm import USUAL_NORMS, NormPolicy, student_statistics, teacher_statistics
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
    norms: NormPolicy = USUAL_NORMS,
) -> tuple[Tensor, Tensor]:
    """L_c = D(T^G(h(x)), h(T(x))) averaged over valid pixels, and the second branch's logits.

    Where both inputs are perturbed, the first sees T'(x) of `other`, and its prediction is brought back before T^G.
    `norms` says which statistics the teacher uses, and which inputs update the running ones.
    """
    first = Perturbation() if variant.first_is_clean else other
    assert first is not None, "a variant that perturbs both inputs needs two perturbations"
    logits = perturbation.clean_logits
    if logits is None:
        logits = branch(student, teacher, first.image(x), variant.first_learns, norms, variant.first_is_clean)

    def perturbed() -> Tensor:
        return branch(student, teacher, perturbation.image(x), variant.second_learns, norms, clean=False)

    pixels = (x.shape[-2], x.shape[-1])
    fused = perturbation.fused if logits.ndim == 4 else None  # predictions for whole images are not moved
    if fused is not None and fused.supports(logits, pixels):
        second = perturbed()
        return fused.kl(logits, second, pixels), second

    target, valid = _target(logits, x, first, perturbation if fused is None else fused.plain())
    del logits  # the target is all the loss needs; a teacher's predictions are freed here
    second = perturbed()
    return divergence(target, second, valid), second


def _target(logits: Tensor, x: Tensor, first: Perturbation, perturbation: Perturbation) -> tuple[Tensor, Tensor | None]:
    """The first branch's prediction, brought back from its own perturbation and moved by the other's; valid pixels."""
    restored, valid = first.undo(upsample(logits, x).softmax(dim=1))
    target = perturbation.prediction(restored)
    return target, moved(valid, perturbation) if target.ndim == 4 else None


def branch(student: nn.Module, teacher: nn.Module, x: Tensor, learns: bool, norms: NormPolicy, clean: bool) -> Tensor:
    """Logits of the student if the branch learns; otherwise of the teacher, which keeps no activations."""
    if not learns:
        with torch.no_grad(), teacher_statistics(teacher, student, norms, clean):
            return teacher(x)
    with student_statistics(student, norms, clean):
        return student(x)
