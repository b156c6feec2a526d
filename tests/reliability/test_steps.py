"""Steps without anything to learn from, and steps that are not finite."""

from __future__ import annotations

import pytest

from reliability.steps import EMPTY, POISONS, is_harmless

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("what", EMPTY)
def test_empty_sets(what, survives):
    """Where no pixel counts, the loss is zero, and the step is not skipped."""
    survives("10 nothing to learn from: a loss of zero", EMPTY[what]())


@pytest.mark.parametrize("what", POISONS)
def test_steps_that_are_not_finite(what, survives):
    """Weights, moments, statistics and average stay the same to the bit; the next step is what it would have been."""
    survives("10 steps that are not finite: skipped", is_harmless(POISONS[what]))
