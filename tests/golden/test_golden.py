"""Nothing learnt has changed: twenty iterations of every method and variant are what they were when recorded."""

from __future__ import annotations

import json

import pytest
import torch

from golden import record
from oneway.methods import VARIANTS

RECORDED = json.loads(record.RECORDED.read_text())
CASES = record.cases()

VARIED = ("simple-phtps ", "mt-phtps ", "fixmatch ", "simple-cutmix 1w-p2")
"""A student as teacher, an average of it, labels of its own, and images that are mixed and put together again.

Their variants are trained every time. A variant says who sees what and who learns, whatever the perturbation: the other
products of the two are among the slow proofs.
"""


def is_product(name: str) -> bool:
    """Whether a case is a variant and a method that others show each."""
    return name.split()[-1] in set(VARIANTS) - {"1w-ct"} and not name.startswith(VARIED)


def test_everything_that_trains_is_recorded():
    """A new method is recorded too: `python tests/golden/record.py` adds what is missing."""
    assert CASES.keys() == RECORDED.keys()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if is_product(name) else []) for name in RECORDED],
)
def test_training_is_what_it_was(name):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = record.run(*CASES[name])
    finally:
        torch.set_num_threads(before)
    expected = RECORDED[name]
    for loss in ("supervised", "consistency"):  # what another machine rounds otherwise has not grown yet
        assert found[loss][:4] == pytest.approx(expected[loss][:4], rel=2e-2, abs=1e-3)
    assert found["digest"] == (record.of_this_machine(expected["digests"]) or found["digest"])
