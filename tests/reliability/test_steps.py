"""Steps without anything to learn from, and steps that are not finite."""

from __future__ import annotations

import pytest

from reliability.steps import EMPTY, POISONS, is_harmless

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("what", EMPTY)
def test_empty_sets(what, tally):
    """Where no pixel counts, the loss is zero, and the step is not skipped."""
    survived = EMPTY[what]()
    tally("10 nothing to learn from: a loss of zero", 1, survived)
    assert survived


@pytest.mark.parametrize("what", POISONS)
def test_steps_that_are_not_finite(what, tally):
    """Weights, moments, statistics and average stay the same to the bit; the next step is what it would have been."""
    survived = is_harmless(POISONS[what])
    tally("10 steps that are not finite: skipped", 1, survived)
    assert survived
