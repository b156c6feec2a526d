"""Reading a run's data again, to evaluate, report or explore: where they are now, and only as they were."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oneway import data
from oneway.cli import app
from oneway.common.errors import UserError
from oneway.config import build, merge
from oneway.config.recipes import recipe
from oneway.runs import open_run
from oneway.tools.evaluate_run import evaluate_run
from oneway.tools.explore import prepare
from oneway.tools.report import write_report
from oneway.tools.train import train
from processes import forked
from small_runs import QUIET, SMALL

CHANGED = r"b\.png has other content.*--data\.refresh"


def photograph(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(256, size=(32, 64, 3), dtype=np.uint8)).save(path)


def write_photographs(root: Path) -> Path:
    """Two to train and two to validate on, of noise, with masks of two halves."""
    for seed, (split, name) in enumerate((split, name) for split in ("train", "val") for name in "ab"):
        photograph(root / split / "images" / f"{name}.png", seed)
        mask = root / split / "masks" / f"{name}.png"
        mask.parent.mkdir(exist_ok=True)
        Image.fromarray((np.arange(64) >= 30 + seed).astype(np.uint8)[None].repeat(32, axis=0)).save(mask)
    (root / "dataset.yaml").write_text("classes: [ground, road]\n", encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on photographs, begun with `--data.refresh`."""
    folder = tmp_path_factory.mktemp("photographs")
    data = {"path": write_photographs(folder / "photos"), "cache": folder / "cache", "refresh": True}
    changes = merge(SMALL, {"labels": "all", "data": data, "jitter": {"crop": (32, 64)}, "model": {"weights": None}})
    train(build(merge(recipe("folder").model_dump(), changes), source="test"), folder / "run", False, QUIET)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """The same with data of its own, which have been decoded."""
    photos = Path(shutil.copytree(trained / "photos", tmp_path / "photos"))
    folder = Path(shutil.copytree(trained / "run", tmp_path / "run"))
    opened = open_run(folder)
    config = opened.config.changed(data={"path": photos, "cache": tmp_path / "cache"})
    replace(opened, config=config).write_settings(opened.split)
    evaluate_run(folder, "val", None, QUIET)
    return folder


def change(run: Path) -> None:
    """One of the photographs that validate becomes another."""
    photograph(run.parent / "photos/val/images/b.png", 11)


@pytest.mark.usefixtures("words_alone")
def test_changed_files_are_not_accepted_for_good(run: Path) -> None:
    """That a run was begun with `--data.refresh` does not mean that its data may change again unseen."""
    change(run)
    with pytest.raises(UserError, match=CHANGED):
        evaluate_run(run, "val", None, QUIET)
    with pytest.raises(UserError, match=CHANGED):
        write_report([run], None)
    assert "b.png has other content" in prepare([run], QUIET).remark
    assert write_report([run], None, refresh=True).is_file()


def test_a_page_to_explore_accepts_changed_files_when_asked(run: Path) -> None:
    """And then shows them."""
    change(run)
    found = prepare([run], QUIET, refresh=True)
    assert not found.remark
    assert [picture.name for picture in found.store.offered.values()] == ["val/images/a.png", "val/images/b.png"]


@pytest.mark.usefixtures("words_alone")
def test_a_report_finds_data_that_have_moved(run: Path) -> None:
    """And repeats where they are in its own command; data of other classes are refused."""
    moved = (run.parent / "photos").rename(run.parent / "moved")
    with pytest.raises(UserError, match="photos"):
        write_report([run], None)
    page = write_report([run], None, data=moved).read_text(encoding="utf-8")
    assert f"oneway report {run} --data {moved}" in re.sub("</?span>", "", page)
    (moved / "dataset.yaml").write_text("classes: [ground, rail]\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"moved: has rail, which .*run was not trained on; lacks road, which"):
        write_report([run], None, data=moved)


@pytest.mark.parametrize("words", ["eval run", "report run other", "explore run other"])
def test_all_commands_that_read_a_runs_data_name_what_has_changed(words: str) -> None:
    """The flags that their messages name are there."""
    flags = "--data moved --data.refresh --model.factory networks:Unet".split()
    _, bound, _ = app.parse_args([*words.split(), *flags], print_error=False, exit_on_error=False)
    assert bound.arguments.items() >= {"data": Path("moved"), "refresh": True, "factory": "networks:Unet"}.items()


def test_a_run_is_not_scored_on_what_it_was_trained_on(run: Path) -> None:
    """Where the images with labels have become others, one that taught may be among those that validate."""
    opened = open_run(run)
    validation = data.load(opened.config.data).read("val").names
    names = {part: (*getattr(opened.split, part), validation[0]) for part in ("labelled", "unlabelled")}
    opened.write_settings(replace(opened.split, **names, digests=()))
    with pytest.raises(UserError, match=f"was trained on the labels of {validation[0]}.*--data DIR"):
        evaluate_run(run, "val", None, QUIET)
    evaluate_run(run, "train", None, QUIET)
    evaluate_run(run, "val", run.parent / "photos", QUIET)  # told to, and to blame for it


def test_a_run_whose_images_are_gone_when_it_ends_is_said_to_be_complete(run, tmp_path):
    """Its score is told first; after days, nobody should take it for one that failed."""
    shutil.rmtree(tmp_path / "photos")
    done = forked("train", run, "--resume", cwd=tmp_path)
    assert done.returncode == 1
    assert "% mIoU on validation with 2 labels" in done.stdout
    said = " ".join(done.stderr.split())
    assert f"{run} is complete; only its report is missing, which this writes: oneway report {run}" in said
