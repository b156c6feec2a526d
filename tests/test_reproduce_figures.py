"""The paper's figures as commands: of settings, and of predictions."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from data import small_sets
from files import contents
from oneway.runs import open_run
from oneway.tools.reproduce import Request, reproduce
from oneway.tools.reproduce.jobs import Job
from oneway.tools.reproduce.paired_tables import PAIRED_TABLES
from oneway.tools.train import train
from small_runs import QUIET, TINY, stub


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    """Six images to learn from, and three that validate."""
    return small_sets.scenes(tmp_path_factory.mktemp("data") / "photographs", 6, 3)


@pytest.fixture
def in_this_process(monkeypatch) -> None:
    """Runs are trained here, and only where they are missing: processes of their own take seconds to start."""

    def train_all(jobs: Sequence[Job], side_by_side: int, console: Console) -> None:
        for job in jobs:
            train(job.config, job.folder, resume=(job.folder / "config.yaml").is_file(), console=QUIET)

    for module in ("fill_table", "qualitative"):
        monkeypatch.setattr(f"oneway.tools.reproduce.{module}.train_all", train_all)


def request_for(photographs: Path, out: Path, **changes: Any) -> Request:
    """All labels, one iteration."""
    settings = TINY | {"data": {"cache": photographs.parent / "cache"}}
    asked = Request(out, data=photographs, columns=("all",), iterations=1, changes=settings)
    return replace(asked, **changes)


def test_settings_are_drawn_beside_the_papers(tmp_path):
    """Points over labels alone by strength and by weight, and clean statistics over those of both inputs, by seed."""
    scores = {"supervised": (40.0, 41.0), "s_G 0, s_P 1": (41.0, 44.0), "s_G 1, s_P 1": (43.0, 42.5)}
    scores |= {"α 0.25": (42.0, 42.0), "both inputs": (42.5, 40.0)}
    out = tmp_path / "facade-settings"
    for row, values in scores.items():
        for seed, value in enumerate(values):
            config = PAIRED_TABLES["facade-settings"].config(row, "50", "").changed(seed=seed)
            stub(out / f"{row.replace(',', '').replace(' ', '-')}-50" / f"seed{seed}", config, value)
    reproduce("facade-settings", Request(tmp_path, table_only=True), QUIET)
    cells = {cell["row"]: cell for cell in json.loads((out / "results.json").read_text())["cells"]}
    assert cells["s_G 0, s_P 1"]["difference"]["values"] == [1.0, 3.0]
    for figure, words in {
        "perturbation-strength": ("+2.0", "± 1.0", "ours, n = 2", "+3.4", "best"),  # the paper: 64.9 − 61.5
        "consistency-weight": ("α", "ours, n = 2"),
        "batch-norm": ("ours, n = 2", "the paper: Cityscapes"),
    }.items():
        drawn = (out / f"{figure}-50.svg").read_text(encoding="utf-8")
        assert all(f"<!-- {word} -->" in drawn for word in words)
        assert Image.open(out / f"{figure}-50.png").width > 800


def test_a_row_trains_with_its_setting(in_this_process, photographs, tmp_path):
    """Beside `supervised` with everything else alike; the columns are numbers of labels."""
    rows = ("supervised", "s_G 0, s_P 2", "both inputs")
    reproduce("facade-settings", request_for(photographs, tmp_path, rows=rows), QUIET)
    folder = tmp_path / "facade-settings"
    trained = [open_run(folder / name / "seed0").config for name in ("s_G-0-s_P-2-all", "both-inputs-all")]
    assert [(config.method, config.train.alpha) for config in trained] == [("simple-phtps", 0.5)] * 2
    assert (trained[0].perturb.geometric, trained[0].perturb.photometric, trained[0].train.batch_norm) == (
        0,
        2,
        "clean",
    )
    assert (trained[1].perturb.geometric, trained[1].perturb.photometric, trained[1].train.batch_norm) == (1, 1, "both")
    cells = json.loads((folder / "results.json").read_text())["cells"]
    assert [cell["row"] for cell in cells if cell["difference"] is not None] == list(rows[1:])


def test_predictions_stand_side_by_side(in_this_process, photographs, tmp_path):
    """Image, truth and both models, clean and perturbed; from the runs of the table, which are trained once."""
    asked = request_for(photographs, tmp_path)
    reproduce("facade-qualitative", asked, QUIET)
    picture = tmp_path / "facade-qualitative" / "facade-qualitative.png"
    trained = contents(tmp_path / "facade")
    values = [
        json.loads((tmp_path / "facade" / f"{name}-all" / "seed0" / "summary.json").read_text())["value"]
        for name in ("simple-phtps", "supervised")
    ]
    drawn = picture.with_suffix(".svg").read_text(encoding="utf-8")
    assert f"<!-- simple-phtps: {values[0]:.1f} % -->" in drawn
    assert f"<!-- supervised: {values[1]:.1f} % -->" in drawn
    assert (drawn.count("<!-- clean -->"), drawn.count("<!-- perturbed -->")) == (3, 3)
    assert drawn.count("<image ") == 6 * 4
    pixels = np.asarray(Image.open(picture).convert("RGB")).reshape(-1, 3)
    assert len(np.unique(pixels, axis=0)) > 1000  # photographs, not empty frames

    before = picture.read_bytes()
    console = Console(file=io.StringIO(), width=200)
    reproduce("facade-qualitative", replace(asked, table_only=True), console)
    assert contents(tmp_path / "facade") == trained
    assert picture.read_bytes() == before
    assert str(picture) in console.file.getvalue()  # type: ignore[attr-defined]
