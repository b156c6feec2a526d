"""A step that is not finite changes nothing, and is counted."""

from __future__ import annotations

import math

import pytest
import torch

from oneway.draws import draw
from oneway.engine.step import step
from reliability.steps import PLAN, everything, same, world


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_nothing_is_learnt_from_a_step_that_is_not_finite(optimiser, poison):
    """Weights, moments, statistics and average stay to the bit, and the next good step is what it would have been."""
    (state, store, config), (other, _, _) = (world(method="mt-phtps", optimiser={"name": optimiser}) for _ in range(2))
    for one in (state, other):
        step(one, store, draw(PLAN, 0), config)
    before = everything(state)

    def spoil(module, inputs, logits):
        return logits * poison

    hook = state.student.register_forward_hook(spoil)
    for index in (1, 2):
        step(state, store, draw(PLAN, index), config)
    hook.remove()
    assert same(before, everything(state))
    assert state.skips.tolist() == [2, 2]

    for one in (state, other):
        step(one, store, draw(PLAN, 3), config)
    assert same(everything(other), everything(state))
    assert state.skips.tolist() == [2, 0]


def test_statistics_that_are_not_finite_are_no_more_welcome_than_losses():
    """Activations of 1e20 have no variance that a float can hold; normalised by it they are 0, and losses finite."""
    state, store, config = world(method="mt-phtps")
    with torch.no_grad():
        next(state.student.parameters()).mul_(1e20)  # the first convolution's
    before = everything(state)
    losses = step(state, store, draw(PLAN, 0), config)
    assert losses["supervised"].isfinite()
    assert state.skips.tolist() == [1, 1]
    assert same(before, everything(state)[: len(before)])


def test_a_first_step_may_be_the_one():
    """Momentum begins from zero even then."""
    (state, store, config), (other, _, _) = (world(method="mt-phtps", optimiser={"name": "sgd"}) for _ in range(2))
    hook = state.student.register_forward_hook(lambda module, inputs, logits: logits * math.nan)
    step(state, store, draw(PLAN, 0), config)
    hook.remove()
    for one in (state, other):
        step(one, store, draw(PLAN, 1), config)
    assert same(everything(other), everything(state))
