"""Messages about runs fit every command that can print them."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path

import pytest
from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.interrupt import Interrupted
from oneway.config import Config
from oneway.runs import Run, choose_device, open_run
from oneway.runs.continuation import Continued
from oneway.tools.train import train
from small_runs import small_streets


def test_a_message_about_a_device_names_no_flag() -> None:
    """`train` has it as `--train.device`, `predict` as `--device`."""
    for name in ("tpu9", "mps", "cuda:99"):
        with pytest.raises(UserError, match=f"^device {name}: "):
            choose_device(name)


def test_the_message_about_changes_names_the_command_that_allows_them() -> None:
    """`quickstart` and `reproduce` continue runs too, and have no such flag."""
    continued = Continued(Run(Path("run"), Config()), Config(), allow_changes=False)
    with pytest.raises(UserError, match=r"seed: 0 → 1.*or insist with oneway train --resume --allow-changes\.$"):
        continued.require_allowed(["seed: 0 → 1"])


def test_a_folder_of_runs_is_answered_with_their_names(tmp_path):
    """As after `train --compare`: what is asked about is one of them."""
    for method in ("supervised", "mt-phtps"):
        (tmp_path / "both" / method).mkdir(parents=True)
        (tmp_path / "both" / method / "config.yaml").touch()
    with pytest.raises(UserError, match=r"not a run folder.*name one: .*both/mt-phtps or .*both/supervised\."):
        open_run(tmp_path / "both")


def test_a_run_that_is_stopped_at_its_end_names_the_report_and_one_is_no_plural(tmp_path, monkeypatch):
    """Of one image with one label; the report is what a run that ends by itself would have left."""
    titles = []

    def stop_at_its_end(training, bar) -> None:
        titles.append(bar.title)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("oneway.tools.train._validate", stop_at_its_end)
    console, out = Console(file=io.StringIO(), width=200), tmp_path / "my run"
    config = small_streets(
        method="supervised", labels="1", data={"images": 1}, train={"validate_every": 4, "batch_labelled": 1}
    )
    with pytest.raises(Interrupted) as stopped:
        train(config, out, resume=False, console=console)
    complete = f"Stopped after the last iteration; {out} is complete. `oneway report '{out}'` writes its report."
    assert str(stopped.value) == complete
    assert titles == ["supervised · 1 label · seed 0"]
    assert "1 training image, " in console.file.getvalue()  # type: ignore[attr-defined]
