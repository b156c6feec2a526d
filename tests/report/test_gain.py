"""What a report says about unlabelled images, and the commands that it proposes."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from oneway.common.errors import UserError
from oneway.config.recipes import PRESETS, PresetName, recipe
from oneway.tools.baseline import train_command, with_method
from oneway.tools.report import write_report
from oneway.tools.report.gain import describe_gain
from oneway.tools.report.reading import read_runs


def test_nothing_is_asked_of_images_that_are_not_there(folders: list[Path]) -> None:
    """Where all images have labels, neither run used another."""
    for folder in folders:
        (run,) = read_runs([folder])
        said = describe_gain([replace(run, further=0)]).text
        assert "What unlabelled images brought" not in said
        assert "What they would bring" not in said
        assert said.startswith("No image is without labels")
        assert "nothing was compared" in said


@pytest.mark.parametrize(
    ("preset", "crop", "flag"),
    [("cpu", (160, 160), []), ("cpu", (96, 96), ["--jitter.crop", "96", "96"]), ("best", (448, 448), [])],
)
def test_a_command_names_a_preset(preset: PresetName, crop: tuple[int, int], flag: list[str]) -> None:
    """And what differs from it, rather than all that it has brought."""
    config = recipe("folder", "fixmatch").changed(**PRESETS[preset]).changed(jitter={"crop": crop})
    said = ["oneway", "train", "folder", "--preset", preset, *flag, "--method", "fixmatch"]
    assert shlex.split(train_command(config)) == said


def test_a_command_leaves_out_what_labels_alone_do_not_use() -> None:
    """Nobody teaches there; a method that perturbs labelled images keeps how strongly."""
    changes = {"train": {"teacher_decay": 0.9, "alpha": 3.0, "iterations": 7}, "perturb": {"geometric": 2.0}}
    config = recipe("folder", "mt-phtps").changed(**changes)
    assert train_command(with_method(config)) == "oneway train folder --train.iterations 7 --method supervised"
    augmented = "oneway train folder --perturb.geometric 2.0 --train.iterations 7 --method supervised-phtps-aug"
    assert train_command(with_method(config, "supervised-phtps-aug")) == augmented
    assert "--train.teacher-decay 0.9" in train_command(config)


def test_labels_alone_are_compared_with_a_method_as_it_comes() -> None:
    """A run without balanced labels does not take them from the method that its report names; a chosen value stays."""
    config, best = recipe("folder", "supervised"), recipe("folder").method
    assert train_command(with_method(config, best)) == f"oneway train folder --method {best}"
    chosen = config.changed(train={"balance": "ohem"})
    assert train_command(with_method(chosen, best)) == f"oneway train folder --train.balance ohem --method {best}"


@pytest.mark.parametrize("missing", ["simple-phtps/summary.json", "supervised", "supervised/summary.json"])
def test_a_comparison_that_has_not_ended_comes_with_how_to_continue(copies: list[Path], missing: str) -> None:
    """Also where its second run has not begun."""
    folder = copies[0].parent
    (folder / missing).rename(folder.with_name(f"{folder.name}-away"))
    with pytest.raises(UserError, match="a comparison that has not ended") as refused:
        write_report([folder], None)
    assert f"oneway train streets --compare --resume --out {folder}" in str(refused.value)


def test_an_average_that_has_hardly_moved_is_not_the_fault_of_images(folders: list[Path]) -> None:
    """Decay 0.99 leaves 0.99⁴ of the start after four iterations; one of 0.1 leaves nothing, nor does a warm-up."""
    baseline, run = read_runs(folders)
    worse = replace(run, value=baseline.value - 9.7)

    def said(**train: object) -> str:
        config = run.config.changed(method="mt-phtps", train=train)
        return describe_gain([baseline, replace(worse, folder=replace(run.folder, config=config))]).text

    slow = said(teacher_decay=0.99)
    assert "is 9.7 points of mIoU below" in slow
    assert "hardly moved: with decay 0.99, it holds 96 % of its start after 4 iterations" in slow
    assert "cost" not in slow
    for fast in (said(teacher_decay=0.1), said(teacher_decay=0.99, teacher_warm_up=True)):
        assert "12 unlabelled images cost 9.7 points of mIoU" in fast
