"""One iteration: Algorithm 1 of the paper, and what surrounds it on the device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from oneway.config import Config
from oneway.consistency import Divergence, branch, consistency_loss
from oneway.data.store import Store
from oneway.draws import Draws, PerturbationDraw
from oneway.jitter import jitter_inputs, jitter_labels
from oneway.losses import confident_l2, cross_entropy, entropy, masked_kl
from oneway.methods import METHODS, VARIANTS, PerturbationName, Variant
from oneway.models.teacher import update_mean_teacher
from oneway.perturb import PERTURBATIONS, Perturbation, perturb_labels
from oneway.perturb.vat import adversarial_change


@dataclass(frozen=True)
class TrainingState:
    """Everything that changes while a run trains. With a simple teacher, `teacher` is the student itself."""

    student: nn.Module
    teacher: nn.Module
    optimiser: torch.optim.Optimizer


class Unlabelled(NamedTuple):
    """The unlabelled part of a mixed batch, and what is to be done with it."""

    x_u: Tensor  # N×3×H×W, clean
    perturbation: Perturbation
    variant: Variant
    alpha: float
    other: Perturbation | None = None  # of the first branch, where a variant perturbs both
    divergence: Divergence = masked_kl
    entropy_weight: float = 0.0
    update_on_perturbed: bool = False


class Losses(NamedTuple):
    """What a step measured, still on the device."""

    supervised: Tensor
    consistency: Tensor | None


def compute_loss_gradient(
    student: nn.Module, teacher: nn.Module, x_l: Tensor, y_l: Tensor, unlabelled: Unlabelled | None
) -> Losses:
    """Algorithm 1: adds ∇_θ (L_s + α L_c) to the student's gradients.

    The supervised backward pass runs first and frees its activations before the consistency loss makes its own, so that
    a one-way step peaks about where a supervised one does.
    """
    loss_s = cross_entropy(student(x_l), y_l)
    loss_s.backward()
    if unlabelled is None:
        return Losses(loss_s.detach(), None)

    u = unlabelled
    loss_c, logits = consistency_loss(
        u.variant, u.divergence, student, teacher, u.x_u, u.perturbation, u.other, u.update_on_perturbed
    )
    loss = u.alpha * loss_c
    if u.entropy_weight > 0:
        loss = loss + u.entropy_weight * entropy(logits)
    loss.backward()
    return Losses(loss_s.detach(), loss_c.detach())


def step(state: TrainingState, store: Store, draws: Draws, config: Config, alpha: float) -> Losses:
    """One iteration as a function of its draws: jitter, perturb, gradient, optimiser, moving average."""
    x_l, y_l = _labelled(store, draws, config)
    # At α = 0, before a warm-up has ended, unlabelled images have no say yet.
    unlabelled = (
        None if METHODS[config.method].supervised or alpha == 0 else _unlabelled(state, store, draws, config, alpha)
    )

    state.optimiser.zero_grad()
    with torch.autocast(x_l.device.type, torch.bfloat16, enabled=_in_bfloat16(config, x_l.device)):
        losses = compute_loss_gradient(state.student, state.teacher, x_l, y_l, unlabelled)
    state.optimiser.step()
    if state.teacher is not state.student:
        update_mean_teacher(state.teacher, state.student, config.train.teacher_decay)
    return losses


def _in_bfloat16(config: Config, device: torch.device) -> bool:
    return config.train.precision == "bfloat16" or (config.train.precision == "auto" and device.type == "cuda")


def _labelled(store: Store, draws: Draws, config: Config) -> tuple[Tensor, Tensor]:
    """x_l and y_l; with an augmenting method, the first half of them perturbed."""
    x, y = jitter_inputs(store, draws.labelled, config.jitter), jitter_labels(store, draws.labelled, config.jitter)
    augmentation = METHODS[config.method].augmentation
    if augmentation is None or draws.augmentation is None:
        return x, y
    half = len(x) // 2
    perturbation = PERTURBATIONS[augmentation](draws.augmentation, x[:half], config.perturb)
    x = torch.cat((perturbation.image(x[:half]), x[half:]))
    return x, torch.cat((perturb_labels(y[:half], perturbation), y[half:]))


def _unlabelled(state: TrainingState, store: Store, draws: Draws, config: Config, alpha: float) -> Unlabelled:
    """x_u with its perturbation, and the row of the table that says how it is used."""
    method, variant = METHODS[config.method], VARIANTS[config.variant]
    assert method.perturbation is not None
    x_u = jitter_inputs(store, draws.unlabelled, config.jitter)
    other = draws.other_perturbation
    return Unlabelled(
        x_u,
        _perturbation(method.perturbation, draws.perturbation, x_u, state, config),
        variant,
        alpha,
        other and _perturbation(method.perturbation, other, x_u, state, config),
        partial(confident_l2, confidence=config.train.confidence) if method.loss == "confident-l2" else masked_kl,
        config.train.entropy if method.entropy else 0.0,
        update_on_perturbed=config.train.batch_norm == "both",
    )


def _perturbation(
    name: PerturbationName, draw: PerturbationDraw, x: Tensor, state: TrainingState, config: Config
) -> Perturbation:
    if name != "vat":
        return PERTURBATIONS[name](draw, x, config.perturb)
    logits_of = partial(branch, state.student, state.teacher, learns=True, update_statistics=False)
    change = adversarial_change(logits_of, x, draw.noise.to(x.dtype), config.perturb.adversarial_norm)
    return Perturbation(image=lambda x: x + change)
