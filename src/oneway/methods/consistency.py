"""One-way consistency with a clean teacher: Algorithm 1 of the paper, and the variants that it compares with."""

from __future__ import annotations

from torch import Tensor

from oneway import ops
from oneway.methods import supervised
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.models.roles import Models
from oneway.ops.losses import Pixels
from oneway.perturb import UNCHANGED, Perturbation


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """Algorithm 1: L_s, then α L_c."""
    yield from supervised.losses(models, batch, settings)
    yield Loss("consistency", consistency(models, batch, settings), settings.alpha)


def consistency(models: Models, batch: Batch, settings: Settings) -> Tensor:
    """L_c = D(T^G(h(x)), h(T(x))), averaged over valid pixels.

    In the variant 1w-ct, the paper's, the first prediction is the teacher's and the second the student's. Where a
    variant perturbs both inputs, the first sees another T'(x), and its prediction is brought back before T^G.
    """
    x, variant = batch.unlabelled(), settings.variant
    perturbation = batch.perturbation(x, 0)
    other = UNCHANGED if variant.first_is_clean else batch.perturbation(x, 1)
    second = models.student if variant.second_learns else models.teacher

    source, clean = other.image(x), variant.first_is_clean
    if variant.first_learns:
        target = models.student(source, clean)
        prediction = second(perturbation.image(x), clean=False)
    else:
        taught = models.teacher_on_side_stream(source, clean)
        prediction = second(perturbation.image(x), clean=False)
        target = taught()
    moves = perturbation if variant.first_is_clean else other.inverse().then(perturbation)
    return divergence(target, prediction, moves, ops.pixels_of(x), settings)


def divergence(
    target_logits: Tensor, logits: Tensor, moves: Perturbation, pixels: Pixels, settings: Settings
) -> Tensor:
    """D of two predictions, of which the target is moved in the way that the image of the other one was perturbed."""
    if settings.loss == "kl":
        return ops.moved_kl(target_logits, logits, moves, pixels)
    if settings.loss == "weighted-kl":
        return ops.moved_kl(target_logits, logits, moves, pixels, by_confidence=True)
    target, valid = ops.moved(target_logits, moves, pixels)
    match settings.loss:
        case "confident":
            return ops.confident_cross_entropy(target, logits, valid, settings.confidence)
        case "confident-l2":
            return ops.confident_l2(target, logits, valid, settings.confidence)
