"""One-way consistency with a clean teacher: Algorithm 1 of the paper, and the variants that it compares with."""

from __future__ import annotations

from torch import Tensor

from oneway import ops
from oneway.methods import supervised
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.methods.table import VARIANTS
from oneway.models.roles import Models
from oneway.perturb import UNCHANGED, Perturbation


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """Algorithm 1: L_s, then α L_c."""
    yield from supervised.losses(models, batch, settings)
    yield Loss("consistency", consistency(models, batch, settings), settings.alpha)


def consistency(models: Models, batch: Batch, settings: Settings) -> Tensor:
    """L_c of the variant."""
    compare = with_clean_teacher if settings.variant == VARIANTS["1w-ct"] else of_variant
    return compare(models, batch, settings)


def with_clean_teacher(models: Models, batch: Batch, settings: Settings) -> Tensor:
    """L_c of Algorithm 1: D(T^G(h_θ'(x_u)), h_θ(T(x_u))) with T = T^G ∘ T^P, a mean over valid pixels."""
    x_u = batch.unlabelled()
    perturbation = batch.perturbation(x_u, 0)
    teacher = models.teacher_on_side_stream(x_u)
    student = models.student(perturbation.image(x_u), clean=False)
    return divergence(teacher(), student, perturbation, x_u, settings)


def of_variant(models: Models, batch: Batch, settings: Settings) -> Tensor:
    """D(first, second): a branch that learns is the student h_θ, and one that does not is the teacher h_θ'.

    Where both inputs are perturbed, the first sees another T'(x_u), and its prediction is brought back before T^G.
    """
    x_u, variant = batch.unlabelled(), settings.variant
    perturbation = batch.perturbation(x_u, 0)
    other = UNCHANGED if variant.first_is_clean else batch.perturbation(x_u, 1)
    if variant.first_learns:
        first = models.student(other.image(x_u), variant.first_is_clean)
        second = (models.student if variant.second_learns else models.teacher)(perturbation.image(x_u), clean=False)
    else:
        teacher = models.teacher_on_side_stream(other.image(x_u), variant.first_is_clean)
        second = models.student(perturbation.image(x_u), clean=False)
        first = teacher()
    return divergence(first, second, other.inverse().then(perturbation), x_u, settings)


def divergence(target: Tensor, logits: Tensor, moves: Perturbation, x: Tensor, settings: Settings) -> Tensor:
    """D of two predictions at the resolution of the images x, of which the target is moved as the other's image was."""
    pixels = ops.pixels_of(x)
    if settings.loss == "kl":
        return ops.moved_kl(target, logits, moves, pixels)
    if settings.loss == "weighted-kl":
        return ops.moved_kl(target, logits, moves, pixels, by_confidence=True)
    target, valid = ops.moved(target, moves, pixels)
    match settings.loss:
        case "confident":
            return ops.confident_cross_entropy(target, logits, valid, settings.confidence)
        case "confident-l2":
            return ops.confident_l2(target, logits, valid, settings.confidence)
