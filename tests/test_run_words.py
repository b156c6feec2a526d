"""What is said about runs fits every command that can say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from oneway.common.errors import UserError
from oneway.config import Config
from oneway.runs import Run, choose_device
from oneway.runs.continuation import Change, Continued


def test_a_device_is_called_by_its_name_alone() -> None:
    """`train` has it as `--train.device`, `predict` as `--device`."""
    for name in ("tpu9", "mps", "cuda:99"):
        with pytest.raises(UserError, match=f"^device {name}: "):
            choose_device(name)


def test_who_may_insist_is_told_with_which_command() -> None:
    """`quickstart` and `reproduce` continue runs too, and have no such flag."""
    continued = Continued(Run(Path("run"), Config()), Config(), allow_changes=False)
    with pytest.raises(UserError, match=r"seed: 0 → 1.*or insist with oneway train --resume --allow-changes\.$"):
        continued.accept([Change("seed", 0, 1)])
