"""Steps that have nothing to learn from, or whose numbers are not finite."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from oneway import data, models
from oneway.common.terms import IGNORE
from oneway.config import Config
from oneway.draws import Plan, draw
from oneway.engine import optim
from oneway.engine.state import TrainingState
from oneway.engine.step import step
from oneway.engine.store import Store
from oneway.models.ema import init_ema
from oneway.models.roles import Models
from oneway.ops.losses import masked_kl
from small_runs import small_streets

PLAN = Plan(0, (0, 1), tuple(range(8)), 2, 2, (1.0, 1.0), False)


def world(**changes: object) -> tuple[TrainingState, Store, Config]:
    """A student with its teacher, street scenes, and the settings they train by."""
    config = small_streets(**changes)
    dataset = data.load(config.data)
    student = models.build(config.model, len(dataset.classes), seed=0)
    state = TrainingState(Models((student,), (init_ema(student),)), optim.optimiser_for([student], config.optimiser))
    state.alpha.fill_(1.0)
    return state, Store.hold(dataset.read("train"), torch.device("cpu")), config


def everything(state: TrainingState) -> list[torch.Tensor]:
    """A copy of all that a step may change."""
    moments = [value for values in state.optimiser.state.values() for value in values.values()]
    tensors = (*state.student.state_dict().values(), *state.teacher.state_dict().values(), *moments)
    return [tensor.clone() for tensor in tensors]


def _multiplied(factor: float) -> Callable[[nn.Module], RemovableHandle]:
    return lambda student: student.register_forward_hook(lambda module, inputs, logits: logits * factor)


POISONS: dict[str, Callable[[nn.Module], RemovableHandle]] = {
    "infinite input": lambda student: student.register_forward_pre_hook(lambda module, inputs: inputs[0] * math.inf),
    "infinite logits": _multiplied(math.inf),
    "logits that are no number": _multiplied(math.nan),
    "one gradient that is no number": lambda student: next(student.parameters()).register_hook(lambda g: g * math.nan),
    "infinite statistics": lambda student: next(
        module for module in student.modules() if isinstance(module, nn.BatchNorm2d)
    ).register_forward_pre_hook(lambda module, inputs: inputs[0] * 1e20),
}
"""What is done to a student in some steps."""


def is_harmless(poison: Callable[[nn.Module], RemovableHandle]) -> bool:
    """Two steps with it change nothing and are counted; the step after them is what it would have been without them."""
    (state, store, config), (other, _, _) = (world(method="mt-phtps") for _ in range(2))
    for one in (state, other):
        step(one, store, draw(PLAN, 0), config)
    before = everything(state)
    hook = poison(state.student)
    for index in (1, 2):
        step(state, store, draw(PLAN, index), config)
    hook.remove()
    unchanged = same(before, everything(state)) and state.skips.tolist() == [2, 2]
    for one in (state, other):
        step(one, store, draw(PLAN, 3), config)
    return unchanged and same(everything(other), everything(state)) and state.skips.tolist() == [2, 0]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """To the bit."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def _nothing_labelled() -> bool:
    state, store, config = world(method="mt-phtps")
    store.labels.fill_(IGNORE)
    losses = step(state, store, draw(PLAN, 0), config)
    return float(losses["supervised"]) == 0 and state.skips.tolist() == [0, 0]


def _nothing_confident() -> bool:
    state, store, config = world(method="mt-cutmix-l2", train={"confidence": 0.999999})
    losses = step(state, store, draw(PLAN, 0), config)
    return float(losses["consistency"]) == 0 and state.skips.tolist() == [0, 0]


def _nothing_valid() -> bool:
    logits = torch.randn(1, 3, 4, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = masked_kl(torch.full((1, 3, 8, 8), 1 / 3), logits, torch.zeros(1, 8, 8, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.item() == 0 and not gradient.any()


EMPTY = {
    "no pixel labelled": _nothing_labelled,
    "no pixel confident": _nothing_confident,
    "no pixel valid": _nothing_valid,
}
"""Whether a loss over no pixel is zero, and its step is not skipped."""
