"""Rounds of labelling: what a model suggests gets its labels, and the next model is trained on them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from data import small_sets
from oneway.common.errors import UserError
from oneway.config import build, merge
from oneway.config.recipes import recipe
from oneway.runs import open_run
from oneway.tools.reproduce import Request, reproduce
from oneway.tools.reproduce.jobs import Job
from oneway.tools.reproduce.rounds import write_labels
from oneway.tools.suggest import suggest
from oneway.tools.train import train
from small_runs import QUIET, stub

TINY: dict[str, Any] = {
    "jitter": {"crop": (32, 32)},
    "model": {"width": 0.125, "weights": None},
    "train": {"batch_labelled": 2, "batch_unlabelled": 2, "device": "cpu"},
}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory) -> Path:
    """Twelve images to learn from, and two that validate."""
    return small_sets.scenes(tmp_path_factory.mktemp("data") / "scenes", 12, 2)


def request_for(scenes: Path, out: Path, **changes: Any) -> Request:
    settings = TINY | {"data": {"cache": scenes.parent / "cache"}}
    asked = Request(out, data=scenes, columns=("2", "4", "6"), iterations=2, changes=settings)
    return replace(asked, **changes)


@pytest.fixture
def in_this_process(monkeypatch) -> list[str]:
    """Runs are trained here; processes of their own take seconds to start. Returns their names, in order."""
    names: list[str] = []

    def train_all(jobs: Sequence[Job], side_by_side: int, console: Console) -> None:
        for job in jobs:
            assert job.after is None or (job.after / "summary.json").is_file()
            if job.prepare is not None:
                job.prepare()
            resume = (job.folder / "config.yaml").is_file()
            if not resume:
                names.append(job.name)
            train(job.config, job.folder, resume, QUIET)

    monkeypatch.setattr("oneway.tools.reproduce.rounds.train_all", train_all)
    return names


def test_labels_of_a_round_are_those_before_and_what_suggest_names(scenes, tmp_path, in_this_process):
    """The first round is common to all; what has ended is not trained again."""
    asked = request_for(scenes, tmp_path, rows=("random", "doubt", "features"))
    reproduce("rounds", asked, QUIET)
    assert len(in_this_process) == 3 + 2 * 2
    out = tmp_path / "rounds"
    first = open_run(out / "random-2/seed0").split
    assert set(first.labelled) < set(open_run(out / "random-4/seed0").split.labelled)
    for row in ("doubt", "features"):
        names = [set(open_run(out / f"{row}-{count}/seed0").split.labelled) for count in (4, 6)]
        assert set(first.labelled) < names[0] < names[1]
        assert [len(found) for found in names] == [4, 6]
    named = suggest(
        out / "random-2/seed0", QUIET, by="doubt", count=2, out=tmp_path / "next.csv", cache=scenes.parent / "cache"
    )
    expected = {score.name for score in named.chosen}
    assert set(open_run(out / "doubt-4/seed0").split.labelled) == {*first.labelled, *expected}

    results = json.loads((out / "results.json").read_text())
    scores = {(cell["row"], cell["column"]): cell["score"]["mean"] for cell in results["cells"]}
    differences = {(cell["row"], cell["column"]): cell["difference"] for cell in results["cells"]}
    gain = scores["doubt", "6"] - scores["random", "6"]
    assert differences["doubt", "6"]["mean"] == pytest.approx(gain)
    assert f"| `doubt` |  | {scores['doubt', '4']:.1f} (" in (out / "table.md").read_text()
    assert (out / "rounds.png").is_file()
    assert "labelled images" in (out / "rounds.svg").read_text()

    in_this_process.clear()
    reproduce("rounds", asked, QUIET)
    assert not in_this_process


def test_only_images_with_a_mask_are_chosen(scenes, tmp_path):
    """Others have no label to give."""
    data, run, file = tmp_path / "data", tmp_path / "run", tmp_path / "labels.txt"
    shutil.copytree(scenes, data)
    for number in range(3, 12):
        (data / f"train/masks/{number:02d}.png").unlink()
    changes = TINY | {"labels": "2", "data": {"path": data, "cache": tmp_path / "cache"}}
    config = build(merge(recipe("folder").model_dump(), changes), "test").changed(train={"iterations": 1})
    train(config, run, resume=False, console=QUIET)
    write_labels(run, "doubt", 1, file)
    assert set(file.read_text().split()) == {f"train/images/{number:02d}.png" for number in range(3)}
    file.unlink()
    with pytest.raises(UserError, match="only 1 can be chosen"):
        write_labels(run, "doubt", 2, file)
    assert not file.exists()


@pytest.mark.slow
def test_rounds_in_processes_of_their_own(scenes, tmp_path):
    """A round waits for the one before, and only for that."""
    asked = request_for(scenes, tmp_path, rows=("both", "features"), side_by_side=2)
    reproduce("rounds", asked, QUIET)
    found = {file.parent.parent.name for file in (tmp_path / "rounds").glob("*/seed0/summary.json")}
    assert found == {"random-2", "both-4", "both-6", "features-4", "features-6"}


def test_differences_are_of_the_same_seed(tmp_path):
    """Mean and standard error over the seeds that both have."""
    values = {"random-20": (40.0, 42.0), "random-35": (44.0, 45.0, 50.0), "doubt-35": (45.0, 48.0)}
    for name, found in values.items():
        for seed, value in enumerate(found):
            stub(tmp_path / "rounds" / name / f"seed{seed}", recipe("folder").changed(seed=seed), value)
    reproduce("rounds", Request(tmp_path, table_only=True), QUIET)
    table = (tmp_path / "rounds/table.md").read_text()
    assert "| `doubt` |  | 46.5 ± 2.1 (+2.0 ± 1.0) n = 2 |" in table


@pytest.mark.parametrize("labels", [("20",), ("35", "20"), ("20", "20"), ("1/8", "1/4"), ("0", "5")])
def test_rounds_that_do_not_grow_are_refused(tmp_path, labels):
    """Before anything is trained."""
    with pytest.raises(UserError, match=r"growing numbers, one for each round, such as 20 35 50"):
        reproduce("rounds", Request(tmp_path, data=tmp_path, columns=labels), QUIET)


def test_an_unknown_way_to_choose(tmp_path):
    """The known ones are listed."""
    with pytest.raises(UserError, match="row of rounds"):
        reproduce("rounds", Request(tmp_path, data=tmp_path, rows=("guess",)), QUIET)


def test_other_rounds_in_the_same_folder_are_refused(scenes, tmp_path, in_this_process):
    """Six labels after four are not those after two; more rounds behind the same ones go on."""
    reproduce("rounds", request_for(scenes, tmp_path, rows=("doubt",), columns=("2", "4")), QUIET)
    reproduce("rounds", request_for(scenes, tmp_path, rows=("doubt",)), QUIET)
    for labels, table_only in product([("2", "6"), ("4", "6"), ("2", "3", "4")], [False, True]):
        with pytest.raises(UserError, match=r"has rounds of doubt to 4 and 6 labels, and not all are among --labels"):
            reproduce("rounds", request_for(scenes, tmp_path, columns=labels, table_only=table_only), QUIET)
    with pytest.raises(UserError, match=r"seed0\.txt: was chosen after another round"):
        reproduce("rounds", request_for(scenes, tmp_path, rows=("doubt",), columns=("3", "4", "6")), QUIET)


def test_more_labels_than_masks_are_refused_before_anything_trains(scenes, tmp_path):
    """And so is a folder in which nothing validates."""
    with pytest.raises(UserError, match=r"--labels 13: .*scenes has 12 images with a mask"):
        reproduce("rounds", request_for(scenes, tmp_path, columns=("2", "4", "13")), QUIET)
    shutil.copytree(scenes / "train", tmp_path / "alone")
    settings = TINY | {"data": {"cache": tmp_path / "cache", "holdout": 0}}
    with pytest.raises(UserError, match="no image validates"):
        reproduce("rounds", request_for(tmp_path / "alone", tmp_path, changes=settings), QUIET)
    assert not [*tmp_path.rglob("config.yaml")]
