"""One iteration: Algorithm 1 of the paper, and what surrounds it on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor, nn

from oneway.config import Config
from oneway.consistency import Divergence, branch, consistency_loss
from oneway.data.store import Store
from oneway.draws import Draws, PerturbationDraw
from oneway.guard import Watch
from oneway.jitter import jitter_inputs, jitter_labels
from oneway.losses import confident_l2, cross_entropy, entropy, masked_kl
from oneway.methods import METHODS, VARIANTS, PerturbationName, Variant
from oneway.models.norm import USUAL_NORMS, NormPolicy, student_statistics
from oneway.models.teacher import update_mean_teacher
from oneway.perturb import PERTURBATIONS, Perturbation, perturb_labels
from oneway.perturb.fused import FUSED, fused_perturbation
from oneway.perturb.vat import adversarial


@dataclass(frozen=True)
class TrainingState:
    """Everything that changes while a run trains. With a simple teacher, `teacher` is the student itself."""

    student: nn.Module
    teacher: nn.Module
    optimiser: torch.optim.Optimizer
    skips: Tensor = field(init=False)
    """On the device: how many steps were skipped since the run began, and how many in a row up to now."""

    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "watch", Watch.over(self.student))
        device = next(self.student.parameters()).device
        object.__setattr__(self, "skips", torch.zeros(2, dtype=torch.int64, device=device))


class Unlabelled(NamedTuple):
    """The unlabelled part of a mixed batch, and what is to be done with it."""

    x_u: Tensor  # N×3×H×W, clean
    perturbation: Perturbation
    variant: Variant
    alpha: float
    other: Perturbation | None = None  # of the first branch, where a variant perturbs both
    divergence: Divergence = masked_kl
    entropy_weight: float = 0.0


class Losses(NamedTuple):
    """What a step measured, still on the device."""

    supervised: Tensor
    consistency: Tensor | None


def compute_loss_gradient(
    student: nn.Module,
    teacher: nn.Module,
    labelled: Callable[[], tuple[Tensor, Tensor]],
    unlabelled: Callable[[], Unlabelled] | None,
    supervised_loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
    norms: NormPolicy = USUAL_NORMS,
) -> Losses:
    """Algorithm 1: adds ∇_θ (L_s + α L_c) to the student's gradients.

    The supervised backward pass runs first and frees its activations before the consistency loss makes its own, so that
    a one-way step peaks about where a supervised one does. For the same reason both parts of the batch, (x_l, y_l) and
    x_u with its perturbation, are functions: their images are made when they are needed, and gone when they are not.
    """
    x_l, y_l = labelled()
    with student_statistics(student, norms, clean=True):
        logits = student(x_l)
    loss_s = supervised_loss(logits, y_l)
    del logits, x_l, y_l
    loss_s.backward()
    if unlabelled is None:
        return Losses(loss_s.detach(), None)

    u = unlabelled()
    loss_c, logits = consistency_loss(u.variant, u.divergence, student, teacher, u.x_u, u.perturbation, u.other, norms)
    loss = u.alpha * loss_c
    if u.entropy_weight > 0:
        loss = loss + u.entropy_weight * entropy(logits)
    del u, logits
    _add_gradient(loss, student)
    return Losses(loss_s.detach(), loss_c.detach())


def _add_gradient(loss: Tensor, model: nn.Module) -> None:
    """`loss.backward()`, but earlier gradients are added at the end, all at once: autograd adds them one by one."""
    earlier = {parameter: parameter.grad for parameter in model.parameters() if parameter.grad is not None}
    model.zero_grad()
    loss.backward()
    gradients = [torch.zeros_like(old) if new.grad is None else new.grad for new, old in earlier.items()]
    torch._foreach_add_(gradients, list(earlier.values()))
    for parameter, gradient in zip(earlier, gradients, strict=True):
        parameter.grad = gradient


def step(state: TrainingState, store: Store, draws: Draws, config: Config, alpha: float) -> Losses:
    """One iteration as a function of its draws: jitter, perturb, gradient, optimiser, moving average.

    Where the loss or a gradient is not finite, nothing is learnt: weights, moments, batch-norm statistics and the
    moving average stay what they were, and the step is counted. All of that happens on the device.
    """
    device = store.pixels.device
    fused = runs_fused(config, device)
    alone = METHODS[config.method].supervised or (alpha == 0 and not _only_entropy(config))
    # Crops and warps run outside autocast: in bfloat16, coordinates would be off by pixels.
    exactly = torch.autocast(device.type, enabled=False)

    statistics = state.watch.snapshot()
    state.optimiser.zero_grad()
    with torch.autocast(device.type, torch.bfloat16, enabled=_in_bfloat16(config, device)):
        losses = compute_loss_gradient(
            state.student,
            state.teacher,
            exactly(partial(_labelled, store, draws, config, fused)),
            None if alone else exactly(partial(_unlabelled, state, store, draws, config, alpha, fused)),
            supervised_loss_of(config, device),
            NormPolicy(config.train.batch_norm, config.train.teacher_norm),
        )
    finite = state.watch.all_finite(losses)
    state.optimiser.found_inf = (~finite).float()  # type: ignore[attr-defined]  # fused optimisers heed it
    state.optimiser.step()
    state.watch.restore_unless(finite, statistics)
    if state.teacher is not state.student:
        update_mean_teacher(state.teacher, state.student, (1 - config.train.teacher_decay) * finite)
    skipped, in_a_row = state.skips
    state.skips.copy_(torch.stack((skipped + ~finite, (in_a_row + 1) * ~finite)))
    return losses


def _only_entropy(config: Config) -> bool:
    """Whether unlabelled images count without consistency; at α = 0 in a warm-up they have no say at all."""
    return METHODS[config.method].entropy and config.train.entropy > 0 and config.train.alpha == 0


def _in_bfloat16(config: Config, device: torch.device) -> bool:
    return config.train.precision == "bfloat16" or (config.train.precision == "auto" and device.type == "cuda")


def runs_fused(config: Config, device: torch.device) -> bool:
    """Whether the kernels for the GPU take the place of the plain functions."""
    return device.type == "cuda" and config.train.engine == "auto" and find_spec("triton") is not None


def supervised_loss_of(config: Config, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
    """The cross-entropy that a device computes fastest."""
    return _fused_cross_entropy if runs_fused(config, device) else cross_entropy


def _fused_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    from oneway.kernels import fused_cross_entropy, supports

    fits = labels.ndim == 3 and supports(logits, (labels.shape[-2], labels.shape[-1]))
    return fused_cross_entropy(logits, labels) if fits else cross_entropy(logits, labels)


def _labelled(store: Store, draws: Draws, config: Config, fused: bool) -> tuple[Tensor, Tensor]:
    """x_l and y_l; with an augmenting method, the first half of them perturbed."""
    x = jitter_inputs(store, draws.labelled, config.jitter, fused=fused)
    y = jitter_labels(store, draws.labelled, config.jitter, fused=fused)
    augmentation = METHODS[config.method].augmentation
    if augmentation is None or draws.augmentation is None:
        return x, y
    half = len(x) // 2
    perturbation = PERTURBATIONS[augmentation](draws.augmentation, x[:half], config.perturb)
    x = torch.cat((perturbation.image(x[:half]), x[half:]))
    return x, torch.cat((perturb_labels(y[:half], perturbation), y[half:]))


def _unlabelled(
    state: TrainingState, store: Store, draws: Draws, config: Config, alpha: float, fused: bool
) -> Unlabelled:
    """x_u with its perturbation, and the row of the table that says how it is used."""
    method, variant = METHODS[config.method], VARIANTS[config.variant]
    assert method.perturbation is not None
    x_u = jitter_inputs(store, draws.unlabelled, config.jitter, fused=fused)
    # The kernels are for the paper's way: a clean teacher, the paper's perturbations, KL.
    fused = fused and config.variant == "1w-ct" and method.loss == "kl" and method.perturbation in FUSED
    other = draws.other_perturbation
    return Unlabelled(
        x_u,
        _perturbation(method.perturbation, draws.perturbation, x_u, state, config, fused),
        variant,
        alpha,
        other and _perturbation(method.perturbation, other, x_u, state, config, fused=False),
        divergence_of(config),
        config.train.entropy if method.entropy else 0.0,
    )


def divergence_of(config: Config) -> Divergence:
    """By which a method compares its two predictions."""
    match METHODS[config.method].loss:
        case "kl":
            return masked_kl
        case "confident-l2":
            return partial(confident_l2, confidence=config.train.confidence)


def _perturbation(
    name: PerturbationName, draw: PerturbationDraw, x: Tensor, state: TrainingState, config: Config, fused: bool
) -> Perturbation:
    if fused:
        return fused_perturbation(name, draw, x, config.perturb)
    if name != "vat":
        return PERTURBATIONS[name](draw, x, config.perturb)
    # The search itself leaves the statistics alone.
    norms = NormPolicy("frozen" if config.train.batch_norm == "frozen" else "clean")
    logits_of = partial(branch, state.student, state.teacher, learns=True, norms=norms, clean=False)
    found = adversarial(logits_of, x, draw.noise.to(x.dtype), config.perturb.adversarial_norm)
    return Perturbation(image=lambda x: x + found.change, clean_logits=found.logits)
