"""Nothing learnt has changed: twenty iterations of every method and variant are what they were when recorded."""

from __future__ import annotations

import json

import pytest
import torch

from golden import record

RECORDED = json.loads(record.RECORDED.read_text())
CASES = record.cases()


def test_everything_that_trains_is_recorded():
    """A new method is recorded too: `python tests/golden/record.py` adds what is missing."""
    assert CASES.keys() == RECORDED["cases"].keys()


@pytest.mark.parametrize("name", RECORDED["cases"])
def test_training_is_what_it_was(name):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = record.run(*CASES[name])
    finally:
        torch.set_num_threads(before)
    expected = RECORDED["cases"][name]
    for loss in ("supervised", "consistency"):  # what another machine rounds otherwise has not grown yet
        assert found[loss][:6] == pytest.approx(expected[loss][:6], rel=2e-2, abs=1e-3)
    if record.machine() == RECORDED["machine"]:
        assert found == expected
