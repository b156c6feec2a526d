"""A fact about the speeds in a model card."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from oneway.tools.export.command import measure_speeds


def test_speeds_are_those_of_a_computer_at_rest(monkeypatch):
    """Of calls that mostly wait for other work, the fastest counts; slow ones are few, so that nobody waits long."""
    now, counts = [0.0], Counter()
    waits = {"quick": itertools.cycle((0.02, 0.05, 0.005)), "slow": itertools.cycle((9.0, 0.5, 0.4))}

    def call(name: str, images: torch.Tensor) -> None:
        counts[name] += 1
        now[0] += next(waits[name])

    monkeypatch.setattr("oneway.tools.export.command.time", SimpleNamespace(perf_counter=lambda: now[0]))
    calls = {name: partial(call, name) for name in waits}
    assert measure_speeds(calls, (4, 4)) == pytest.approx({"quick": 200, "slow": 2.5})
    assert 3 < counts["slow"] < 8
    assert measure_speeds({"quick": calls["quick"]}, (4, 4)) == pytest.approx({"quick": 200})
    assert now[0] < 20
