"""Exploring runs whose network is made by code of the user's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oneway.common.errors import UserError
from oneway.tools.explore import prepare
from oneway.tools.train import train
from small_runs import QUIET, small_streets

NETWORK = """
from torch import nn

def network(classes):
    return nn.Conv2d(3, classes, 3, padding=1)
"""


def test_a_run_with_a_factory_is_explored_by_naming_it_again(
    trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a run of ours; what a folder names is not run for anyone who does not."""
    name = "network_to_explore"
    (tmp_path / f"{name}.py").write_text(NETWORK, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    factory = f"{name}:network"
    own = tmp_path / "own"
    train(small_streets(model={"factory": factory}), own, resume=False, console=QUIET)
    with pytest.raises(UserError, match=f"--model.factory {factory}"):
        prepare([trained_run, own], QUIET)
    assert len(prepare([trained_run, own], QUIET, factory=factory).runs) == 2
