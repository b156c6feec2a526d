"""One iteration: the losses of a method, their gradients, the optimiser, the EMA; all on the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial, reduce
from typing import cast

import torch
from torch import Tensor, nn

from oneway.common.errors import UserError
from oneway.common.words import listed
from oneway.config import Config
from oneway.draws import Draws
from oneway.engine.jitter import jitter_inputs, jitter_labels, jitter_pairs
from oneway.engine.state import TrainingState
from oneway.engine.store import Store
from oneway.methods import METHODS, VARIANTS
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.models.ema import update_ema
from oneway.models.precision import weights_in
from oneway.ops import Group, current, kernels_run
from oneway.perturb import perturb_labels, perturbation

Measured = dict[str, Tensor]
"""Losses by name, on the device."""

TAKEN = ("iteration", "learning_rate", "skipped", "miou", "accuracy", "per_class")
"""Names that lines of `metrics.jsonl` have for something else than a loss."""


def step(state: TrainingState, store: Store, draws: Draws, config: Config, consistent: bool = True) -> Measured:
    """One iteration as a function of its draws: crops, perturbations, gradients, optimiser, EMA.

    Where a loss or a gradient is not finite, the step is skipped and counted: weights, moments, batch-norm statistics
    and EMAs keep their values. All of that happens on the device, without synchronisation.

    Args:
        state: The training state, changed in place.
        store: The images.
        draws: The images of the batch, and all random numbers.
        config: Every setting; α is read from the state.
        consistent: Whether unlabelled images take part; in a warm-up they do not.
    """
    device = store.pixels.device
    method = METHODS[config.method if consistent else "supervised"]
    statistics = state.guard.snapshot()
    state.optimiser.zero_grad()
    bfloat16 = in_bfloat16(config, device)
    # An unknown network (`model.factory`) may use its weights in other ways than its layers' forward.
    cast_together = bfloat16 and kernels_run(device) and config.model.factory is None
    networks = dict.fromkeys((*state.models.learning, *state.models.teachers) if cast_together else ())  # each once
    with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16), weights_in(torch.bfloat16, *networks):
        settings = settings_of(config, state.alpha, state.class_weights, state.progress)
        losses = method.generator()(state.models, mixed_batch(store, draws, config), settings)
        measured = add_gradients(losses, state.guard.parameters)
    if (group := current()) is not None:
        measured = add_up_shares(measured, state.guard.parameters, group)
    finite = state.guard.all_finite(measured.values())
    state.optimiser.found_inf = (~finite).float()  # type: ignore[attr-defined]  # it skips where this is set
    state.optimiser.step()
    state.guard.restore_unless(finite, statistics)
    for teacher, student in state.averages:
        update_ema(teacher, student, state.warm_up.clamp(min=1 - config.train.teacher_decay) * finite)
    skipped, in_a_row = state.skips
    state.skips.copy_(torch.stack((skipped + ~finite, (in_a_row + 1) * ~finite)))
    return measured


def add_gradients(losses: Losses, parameters: Iterable[nn.Parameter]) -> Measured:
    """Accumulate the gradients of all losses; returns the losses by name, equal names added up.

    A backward pass follows each yield and frees its activations before the next loss allocates its own: so the peak
    memory of a one-way step is about that of a supervised one.
    """
    parameters, measured = list(parameters), Measured()
    if not isinstance(losses, Iterator):
        raise UserError(f"The method returns a {type(losses).__name__}; let it `yield` its losses, one after another.")
    for yielded in losses:
        terms = terms_of(yielded)
        backward(terms, parameters)
        for name, value, _ in terms:
            measured[name] = value.detach() if name not in measured else measured[name] + value.detach()
        del yielded, terms
    if not measured:
        raise UserError("The method yields no loss, and nothing would learn: `yield from supervised.losses(…)` first.")
    return measured


def terms_of(yielded: Loss | tuple[Loss, ...]) -> tuple[Loss, ...]:
    """Losses that a method yields together; what cannot be differentiated is refused by its name."""
    terms: tuple[Loss, ...] = yielded if type(yielded) is tuple else (yielded,)  # type: ignore[assignment]
    for term in terms:
        if not isinstance(term, Loss):
            raise UserError(f"The method yields a {type(term).__name__}; give it a name: Loss(name, value, weight).")
        if term.name in TAKEN:
            raise UserError(f"The method's loss {term.name!r} has a name that logs have for something else; rename it.")
        if term.value.ndim > 0:
            raise UserError(f"The method's loss {term.name!r} has shape {tuple(term.value.shape)}; make it a scalar.")
    if not any(term.value.requires_grad for term in terms):
        names = listed([repr(term.name) for term in terms])
        raise UserError(f"The method's loss {names} has no gradient: it depends on no prediction of a student.")
    return terms


def backward(terms: tuple[Loss, ...], parameters: list[nn.Parameter]) -> None:
    """A backward pass that accumulates gradients in one fused operation; autograd would add tensor by tensor."""
    earlier = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
    for parameter in parameters:
        parameter.grad = None
    reduce(torch.add, (term.weighted for term in terms)).backward()
    gradients = [torch.zeros_like(old) if new.grad is None else new.grad for new, old in earlier]
    if earlier:
        torch._foreach_add_(gradients, [old for _, old in earlier])
    for (parameter, _), gradient in zip(earlier, gradients, strict=True):
        parameter.grad = gradient


@torch.no_grad()
def add_up_shares(measured: Measured, parameters: Iterable[nn.Parameter], group: Group) -> Measured:
    """All-reduce losses and gradients over the processes, as one flat tensor for each dtype."""
    learning = [parameter for parameter in parameters if parameter.grad is not None]
    tensors = [*(cast(Tensor, parameter.grad) for parameter in learning), *measured.values()]
    for kind in dict.fromkeys(tensor.dtype for tensor in tensors):
        places = [place for place, tensor in enumerate(tensors) if tensor.dtype == kind]
        # Flattened in memory order. Afterwards, gradients are views of the flat tensor.
        dense = [_without_gaps(tensors[place]) for place in places]
        together = torch.cat([each.as_strided((each.numel(),), (1,)) for each in dense])
        group.add_up(together)
        parts = together.split([each.numel() for each in dense])
        for place, each, part in zip(places, dense, parts, strict=True):
            tensors[place] = part.as_strided(each.shape, each.stride())
    for parameter, gradient in zip(learning, tensors, strict=False):
        parameter.grad = gradient
    return {name: total.clone() for name, total in zip(measured, tensors[len(learning) :], strict=True)}


def _without_gaps(tensor: Tensor) -> Tensor:
    """The tensor, dense in memory: a copy where it has gaps."""
    in_place = tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return tensor if in_place else tensor.contiguous()


def in_bfloat16(config: Config, device: torch.device) -> bool:
    """Whether the network's activations are in bfloat16."""
    return config.train.precision == "bfloat16" or (config.train.precision == "auto" and device.type == "cuda")


def settings_of(
    config: Config, alpha: Tensor | float, class_weights: Tensor | None = None, progress: Tensor | float = 0.0
) -> Settings:
    """The settings that a method's losses receive."""
    return Settings(
        alpha=alpha,
        variant=VARIANTS[config.variant],
        loss=METHODS[config.method].loss,
        confidence=config.train.confidence,
        entropy=config.train.entropy,
        adversarial_norm=config.perturb.adversarial_norm,
        balance=config.train.balance,
        class_weights=class_weights,
        progress=progress,
    )


def mixed_batch(store: Store, draws: Draws, config: Config) -> Batch:
    """The images of one iteration, cropped when the method asks for them."""
    # Crops and warps run outside autocast: in bfloat16, coordinates would be off by pixels.
    exactly, overlap = torch.autocast(store.pixels.device.type, enabled=False), draws.overlap
    method, jitter = METHODS[config.method], config.jitter
    pair = None if overlap is None else partial(jitter_pairs, store, draws.unlabelled, overlap, jitter)
    return Batch(
        labelled=exactly(partial(_labelled, store, draws, config)),
        unlabelled=exactly(partial(jitter_inputs, store, draws.unlabelled, jitter)),
        perturbation=exactly(lambda x, view: perturbation(method.perturb, draws.views[view], x, config.perturb)),
        noise=draws.views[0].noise if method.noise else None,
        selection=draws.selection,
        pair=None if pair is None else exactly(pair),
        augseg=draws.augseg,
    )


def _labelled(store: Store, draws: Draws, config: Config) -> tuple[Tensor, Tensor]:
    """x_l and y_l; a method with `augment` perturbs the first half of them, or all."""
    x, y = jitter_inputs(store, draws.labelled, config.jitter), jitter_labels(store, draws.labelled, config.jitter)
    augment = METHODS[config.method].augment
    if not augment or draws.augmentation is None:
        return x, y
    count = len(draws.augmentation.displacements)
    change = perturbation(augment, draws.augmentation, x[:count], config.perturb)
    x = torch.cat((change.image(x[:count]), x[count:]))
    return x, torch.cat((perturb_labels(y[:count], change), y[count:]))
