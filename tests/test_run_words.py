"""Messages about runs fit every command that can print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from oneway.common.errors import UserError
from oneway.config import Config
from oneway.runs import Run, choose_device, open_run
from oneway.runs.continuation import Continued


def test_a_message_about_a_device_names_no_flag() -> None:
    """`train` has it as `--train.device`, `predict` as `--device`."""
    for name in ("tpu9", "mps", "cuda:99"):
        with pytest.raises(UserError, match=f"^device {name}: "):
            choose_device(name)


def test_the_message_about_changes_names_the_command_that_allows_them() -> None:
    """`quickstart` and `reproduce` continue runs too, and have no such flag."""
    continued = Continued(Run(Path("run"), Config()), Config(), allow_changes=False)
    with pytest.raises(UserError, match=r"seed: 0 → 1.*or insist with oneway train --resume --allow-changes\.$"):
        continued.accept(["seed: 0 → 1"])


def test_a_folder_of_runs_is_answered_with_their_names(tmp_path):
    """As after `train --compare`: what is asked about is one of them."""
    for method in ("supervised", "mt-phtps"):
        (tmp_path / "both" / method).mkdir(parents=True)
        (tmp_path / "both" / method / "config.yaml").touch()
    with pytest.raises(UserError, match=r"not a run folder.*name one: .*both/mt-phtps or .*both/supervised\."):
        open_run(tmp_path / "both")
