"""A step that is not finite changes nothing, and is counted."""

from __future__ import annotations

import math

import pytest
import torch

from oneway import data, models, optim
from oneway.config import Config, build, merge
from oneway.data.store import Store
from oneway.draws import Plan, draw
from oneway.models.teacher import mean_teacher
from oneway.recipes import recipe
from oneway.step import TrainingState, step

SMALL = {
    "data": {"size": (32, 64), "images": 8},
    "jitter": {"crop": (32, 64)},
    "model": {"width": 0.25},
    "train": {"batch_labelled": 2, "batch_unlabelled": 2},
}
PLAN = Plan(0, (0, 1), tuple(range(8)), 2, 2, (1.0, 1.0), False)


def world(**changes: object) -> tuple[TrainingState, Store, Config]:
    config = build(merge(merge(recipe("streets").model_dump(), SMALL), changes), "test")
    dataset = data.load(config.data)
    student = models.build(config.model, len(dataset.classes), seed=0)
    state = TrainingState(student, mean_teacher(student), optim.optimiser_for(student, config.optimiser))
    return state, Store.hold(dataset.read("train"), torch.device("cpu")), config


def everything(state: TrainingState) -> list[torch.Tensor]:
    moments = [value for values in state.optimiser.state.values() for value in values.values()]
    tensors = (*state.student.state_dict().values(), *state.teacher.state_dict().values(), *moments)
    return [tensor.clone() for tensor in tensors]


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_nothing_is_learnt_from_a_step_that_is_not_finite(optimiser, poison):
    """Weights, moments, statistics and average stay to the bit, and the next good step is what it would have been."""
    (state, store, config), (other, _, _) = (world(method="mt-phtps", optimiser={"name": optimiser}) for _ in range(2))
    for one in (state, other):
        step(one, store, draw(PLAN, 0), config, alpha=1.0)
    before = everything(state)

    def spoil(module, inputs, logits):
        return logits * poison

    hook = state.student.register_forward_hook(spoil)
    for index in (1, 2):
        step(state, store, draw(PLAN, index), config, alpha=1.0)
    hook.remove()
    assert all(torch.equal(a, b) for a, b in zip(before, everything(state), strict=True))
    assert state.skips.tolist() == [2, 2]

    for one in (state, other):
        step(one, store, draw(PLAN, 3), config, alpha=1.0)
    assert all(torch.equal(a, b) for a, b in zip(everything(other), everything(state), strict=True))
    assert state.skips.tolist() == [2, 0]


def test_a_first_step_may_be_the_one():
    """Momentum begins from zero even then."""
    (state, store, config), (other, _, _) = (world(method="mt-phtps", optimiser={"name": "sgd"}) for _ in range(2))
    hook = state.student.register_forward_hook(lambda module, inputs, logits: logits * math.nan)
    step(state, store, draw(PLAN, 0), config, alpha=1.0)
    hook.remove()
    for one in (state, other):
        step(one, store, draw(PLAN, 1), config, alpha=1.0)
    assert all(torch.equal(a, b) for a, b in zip(everything(other), everything(state), strict=True))
