"""Which runs stand side by side on a page: those that were validated on the same images, whatever they trained on."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import oneway
from files import change_json
from oneway.common.errors import UserError
from oneway.config import build, merge
from oneway.config.recipes import recipe
from oneway.runs import open_run
from oneway.tools.report import words, write_report
from oneway.tools.report.facts import read_runs
from oneway.tools.train import train
from small_runs import METHODS, QUIET, SMALL

TRAINING = {
    "further images": {"unlabelled": "elsewhere"},
    "number of images": {"images": 17},
    "coarse labels": {"coarse": "labels"},
    "another cache": {"cache": "decoded"},
    "files decoded again": {"refresh": True},
    "broken files left out": {"skip_unreadable": True},
    "a folder that has moved": {"path": "moved"},
}


def with_data(folder: Path, **changes: object) -> None:
    """Puts other settings of the data into a run's configuration."""
    run = open_run(folder)
    config = build(merge(run.config.model_dump(), {"data": changes}), source="test")
    replace(run, config=config).write_settings(run.split)


@pytest.mark.parametrize("changes", TRAINING.values(), ids=TRAINING)
def test_runs_may_differ_in_what_they_train_on(copies: list[Path], changes: dict[str, object]) -> None:
    """As long as the validation data are the same."""
    with_data(copies[1], **changes)
    assert [run.config.method for run in read_runs(copies)] == list(METHODS)


def test_settings_without_effect_do_not_prevent_a_comparison(copies: list[Path]) -> None:
    """A share to hold out changes nothing where the validation images are the same."""
    with_data(copies[1], holdout=0.3, seed=7)
    assert len(read_runs(copies)) == 2


def test_runs_validated_on_other_images_are_refused(copies: list[Path]) -> None:
    """Though classes and settings are the same, but for the folder."""
    with_data(copies[1], path="other")
    change_json(copies[1] / "split.json", validation="0123456789abcdef")
    with pytest.raises(
        UserError,
        match=r"cannot be compared.*data\.path: None → .*other; content of the validation images, whose names are the",
    ):
        read_runs(copies)


def test_other_validation_images_are_named(copies: list[Path]) -> None:
    """Those that only one of two runs was validated by, and what to do about it."""
    shared, *_ = open_run(copies[0]).split.validating
    change_json(copies[0] / "split.json", validating=[shared, "photo25.png"])
    change_json(copies[1] / "split.json", validating=[shared, "photo07.jpg"], validation="0123456789abcdef")
    named = "photo25.png validated only the first, photo07.jpg validated only the second"
    with pytest.raises(UserError, match=f"differ in validation images: {named}.*`val` in dataset.yaml") as error:
        read_runs(copies)
    assert shared not in str(error.value)


def test_different_numbers_of_images_without_labels_are_said(copies: list[Path], tmp_path: Path) -> None:
    """Two semi-supervised runs: the page says how many images each had."""
    more = Path(shutil.copytree(copies[1], tmp_path / "more"))
    split = open_run(more).split
    further = tuple(f"further/{index}.png" for index in range(5))
    (more / "split.json").write_text(replace(split, unlabelled=split.unlabelled + further).to_json(), encoding="utf-8")
    assert "and 17 instead of 12 further images without labels" in words.lead(read_runs([copies[1], more]))


@pytest.mark.parametrize(
    ("name", "changes"),
    [("split.json", {"labelled": None}), ("split.json", {"labelled": ["a"]}), ("environment.json", {"versions": 3})],
)
def test_a_damaged_file_is_named(copies: list[Path], name: str, changes: dict[str, object]) -> None:
    """A run folder may come from anywhere."""
    change_json(copies[0] / name, **changes)
    with pytest.raises(UserError, match=rf"{re.escape(str(copies[0] / name))}: damaged"):
        read_runs(copies)


def test_runs_before_and_after_more_labels_are_compared_by_images_that_taught_neither(tmp_path: Path) -> None:
    """As suggest, label, train, report go: what is held out changes with the labels; both are scored anew."""
    photos, numbers = tmp_path / "photos", np.random.default_rng(0)
    for kind in ("images", "masks"):
        (photos / kind).mkdir(parents=True)
    (photos / "dataset.yaml").write_text("classes: [ground, road]\n", encoding="utf-8")
    truth = {f"images/{name}.png": numbers.integers(2, size=(32, 64)).astype(np.uint8) for name in "abcdefgh"}
    for name in truth:
        Image.fromarray(numbers.integers(256, size=(32, 64, 3)).astype(np.uint8)).save(photos / name)
    changes = merge(SMALL, {"labels": "all", "data": {"path": photos, "cache": tmp_path / "cache"}})
    config = build(merge(recipe("folder").model_dump(), merge(changes, {"model": {"weights": None}})), source="test")
    runs = [tmp_path / "first", tmp_path / "second"]
    for run, labelled in zip(runs, ("abcd", "abcdefg"), strict=True):
        for name in labelled:
            Image.fromarray(truth[f"images/{name}.png"]).save(photos / "masks" / f"{name}.png")
        train(config.changed(data={"refresh": True}), run, False, QUIET)
    one, two = (open_run(run).split for run in runs)
    assert {*one.validating} != {*two.validating}
    common = sorted({*one.validating, *two.validating} - {*one.labelled, *two.labelled})
    assert common
    page = write_report(runs, tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"scored here by {len(common)} image" in page
    assert common[0] in page
    for run in runs:
        model, hits, total = oneway.load(run, device="cpu"), np.zeros(2), np.zeros(2)
        for name in common:
            found = np.asarray(model.predict(photos / name).labels)
            for label in (0, 1):
                hits[label] += np.sum((found == label) & (truth[name] == label))
                total[label] += np.sum((found == label) | (truth[name] == label))
        assert f"{100 * np.mean(hits / total):.1f}" in page
