"""One iteration: Algorithm 1 of the paper, and what surrounds it on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from oneway.config import Config
from oneway.consistency import consistency_loss
from oneway.data.store import Store
from oneway.draws import Draws
from oneway.jitter import jitter_images, jitter_labels
from oneway.losses import cross_entropy
from oneway.methods import METHODS, VARIANTS, Variant
from oneway.models.teacher import update_mean_teacher
from oneway.perturb import PERTURBATIONS, Perturbation


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
    update_on_perturbed: bool


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

    loss_c = consistency_loss(
        unlabelled.variant, student, teacher, unlabelled.x_u, unlabelled.perturbation, unlabelled.update_on_perturbed
    )
    (unlabelled.alpha * loss_c).backward()
    return Losses(loss_s.detach(), loss_c.detach())


def step(state: TrainingState, store: Store, draws: Draws, config: Config) -> Losses:
    """One iteration as a function of its draws: jitter, perturb, gradient, optimiser, moving average."""
    crop = config.jitter.crop
    images, labels = store.look_up(draws.labelled.item)
    x_l, y_l = jitter_images(images, draws.labelled, crop), jitter_labels(labels, draws.labelled, crop)
    unlabelled = None
    perturbation = METHODS[config.method].perturbation
    if perturbation is not None:
        images, _ = store.look_up(draws.unlabelled.item)
        x_u = jitter_images(images, draws.unlabelled, crop)
        unlabelled = Unlabelled(
            x_u,
            PERTURBATIONS[perturbation](draws.perturbation, crop, config.perturb),
            VARIANTS[config.variant],
            config.train.alpha,
            update_on_perturbed=config.train.batch_norm == "both",
        )

    state.optimiser.zero_grad()
    losses = compute_loss_gradient(state.student, state.teacher, x_l, y_l, unlabelled)
    state.optimiser.step()
    if state.teacher is not state.student:
        update_mean_teacher(state.teacher, state.student, config.train.teacher_decay)
    return losses
