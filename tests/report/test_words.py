"""The words: gains, losses and ties are each called what they are, and small differences decide nothing."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from files import change_json
from oneway.common.words import counted
from oneway.data.streets import CLASSES
from oneway.tools.report import cautions, class_words, robustness_words, words
from oneway.tools.report.facts import RunFacts
from oneway.tools.report.reading import read_runs
from oneway.tools.report.robustness import Robustness


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((41.3, 52.8), "+11.5 points from the same 4 labels, the same number of iterations and 12 further images"),
        ((52.8, 41.3), "simple-phtps is 11.5 points worse than supervised, with the same 4 labels"),
        ((52.84, 52.8), "simple-phtps is no better and no worse than supervised"),
        ((54.156, 40.726), "simple-phtps is 13.5 points worse than supervised"),  # 54.2 and 40.7 are shown
        ((52.96, 53.04), "simple-phtps is no better and no worse than supervised"),  # 53.0 twice
    ],
)
def test_lead_says_plainly_what_was_gained(copies: list[Path], values: tuple[float, float], expected: str) -> None:
    """A gain, a loss and no difference are each called what they are."""
    for folder, value in zip(copies, values, strict=True):
        change_json(folder / "summary.json", value=value)
    assert words.lead(read_runs(copies)).startswith(expected)


def test_gains_of_classes_are_those_a_reader_finds_by_subtracting(copies: list[Path]) -> None:
    """98.106 and 97.952 stand there as 98.1 and 98.0, so that the loss is 0.1 and not 0.2."""
    for folder, value in zip(copies, (98.106, 97.952), strict=True):
        change_json(folder / "summary.json", per_class=dict.fromkeys(CLASSES, value), absent=[])
    assert set(class_words.class_gains(*read_runs(copies)).values()) == {-0.1}


@pytest.mark.parametrize(
    ("counts", "expected"), [([1], "1 image"), ([1, 1], "1 image"), ([1, 4], "1 / 4 images"), ([1200], "1,200 images")]
)
def test_one_is_singular(counts: list[int], expected: str) -> None:
    """And what is the same for all runs is said once."""
    assert counted(counts, "image") == expected


def test_one_of_everything_is_singular(copies: list[Path]) -> None:
    """One label, one further image, one iteration, one validation image: no sentence has a plural of them."""
    change_json(copies[1] / "summary.json", validation_samples=1, iterations=1)
    (run,) = read_runs(copies[1:])
    runs = [replace(run, labelled=run.labelled[:1], further=1)]
    said = " ".join([words.lead(runs), cautions.caution(runs), *words.subtitle(runs)])
    said += robustness_words.measurement_note(runs, Robustness([], [], 1, None))
    assert not re.findall(r"\b1 (?:\w+ )?(?:labels|images|iterations)\b", said), said


@pytest.mark.parametrize(("count", "warned"), [(9, True), (10, False)])
def test_a_warning_where_few_images_validate(folders: list[Path], count: int, warned: bool) -> None:
    """Below ten."""
    runs = [replace(run, validation_samples=count) for run in read_runs(folders[:1])]
    assert bool(cautions.caution(runs)) == warned


def test_a_warning_where_few_validation_images_show_a_class(folders: list[Path]) -> None:
    """However many there are, where the classes are half of the mean or more: each by its name."""
    (run,) = read_runs(folders[:1])
    counts = np.zeros((12, 3, len(CLASSES)), dtype=np.int64)
    counts[:, :, 0] = 5
    counts[:2, :, 1] = 5
    runs = [replace(run, validation_samples=12, by_image=counts)]
    said = f"Of 12 validation images, 2 show {CLASSES[1]}, too few to mean much: others could change its IoU"
    assert cautions.caution(runs).startswith(said)
    assert cautions.caution(runs).endswith("Label more images that show it, and name some as val in dataset.yaml.")
    counts[0, :, 2] = 5
    said = f"Of 12 validation images, fewer than 4 show {CLASSES[1]} or {CLASSES[2]}, too few"
    assert cautions.caution(runs).startswith(said)
    counts[:4, :, 1:3] = 5
    assert not cautions.caution(runs)


def test_the_worst_class_is_named(copies: list[Path]) -> None:
    """That of the last run, with its value in each; a class that no image has is none."""
    known = dict.fromkeys(CLASSES[2:], 80.0)
    change_json(copies[0] / "summary.json", per_class={CLASSES[0]: 99.9, CLASSES[1]: None, **known, "car": 70.0})
    change_json(copies[1] / "summary.json", per_class={CLASSES[0]: 99.9, CLASSES[1]: None, **known, "car": 48.41})
    said = class_words.lowest_class(read_runs(copies)).replace("\N{NO-BREAK SPACE}", " ")
    assert said == "Of the classes, car has the lowest IoU: 70.0 → 48.4 %."
    assert "Of the classes, car has the lowest IoU: 70.0" in words.lead(read_runs(copies[:1]))


def test_the_small_print_says_on_how_many_images_was_measured(copies: list[Path]) -> None:
    change_json(copies[0] / "summary.json", validation_samples=40)
    runs = read_runs(copies[:1])
    assert words.subtitle(runs)[-1] == "the last iteration’s model on 40 validation images"
    assert robustness_words.measurement_note(runs, Robustness([], [], 8, (64, 128))) == (
        "Measured on 8 of 40 validation images, 128×64 pixels of each."
    )


def test_best_of_several_is_named_and_same_methods_told_apart(copies: list[Path], tmp_path: Path) -> None:
    """Three runs: the headline names the best; two with one method and setting differ by folder."""
    third = Path(shutil.copytree(copies[1], tmp_path / "third"))
    change_json(third / "summary.json", value=99.0)
    runs = read_runs([*copies, third])
    assert len({run.name for run in runs}) == 3
    headline = "".join(phrase.text for phrase in words.headline(runs))
    assert "third is the best of 3 with 99.0" in headline


def test_most_confused_class_is_read_off_the_rows(copies: list[Path]) -> None:
    """Hand-made matrix: 30 of 100 pixels of the first class are given the third; the second class is always right."""
    matrix = np.zeros((len(CLASSES), len(CLASSES)), dtype=int)
    matrix[0, :3] = 60, 10, 30
    matrix[1, 1] = 7
    change_json(copies[0] / "summary.json", confusion=matrix.tolist(), absent=list(CLASSES[2:]))
    run: RunFacts = read_runs(copies[:1])[0]
    found = class_words.most_confused(run)
    assert found[CLASSES[0]] == (CLASSES[2], 30.0)
    assert found[CLASSES[1]] is None
    assert class_words.present_classes(run) == list(CLASSES[:2])


def test_the_mean_of_an_earlier_version_is_told_apart(copies: list[Path]) -> None:
    """It has a number for a class that no validation image has; no word where all are there."""
    assert class_words.about_absent(read_runs(copies)) == ""
    known = dict.fromkeys(CLASSES[1:], 50.0)
    change_json(copies[0] / "summary.json", per_class={CLASSES[0]: 0.0, **known}, absent=[CLASSES[0]])
    change_json(copies[1] / "summary.json", per_class={CLASSES[0]: None, **known}, absent=[CLASSES[0]])
    note = class_words.about_absent(read_runs(copies))
    assert "is absent, and not in the mean" in note
    assert note.endswith("In the mean of supervised, by an earlier version, it counts as zero.")


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (
            ((18.2, 20.0), (31.0, 21.9)),
            "supervised from 40.0 to 18.2 and simple-phtps from 40.0 to 31.0 % mIoU; a warp",
        ),
        (((18.2, 20.0), (31.0, 21.9)), "a warp brings supervised to 20.0 and simple-phtps to 21.9, too close to call."),
        (((31.0, 20.0), (30.0, 35.0)), "to 30.0 % mIoU, too close to call; a warp brings supervised to 20.0"),
    ],
)
def test_small_differences_decide_nothing(
    folders: list[Path], ends: tuple[tuple[float, float], ...], expected: str
) -> None:
    """Under two points no run is called better."""
    found = Robustness([[40.0, end[0]] for end in ends], [[40.0, end[1]] for end in ends], 8, None)
    assert expected in robustness_words.robustness_text(read_runs(folders), found)


def test_figures_of_parts_are_said_to_be_so(folders: list[Path]) -> None:
    """In the sentence that has them: the headline has others, of whole images."""
    sentence = robustness_words.robustness_text(
        read_runs(folders[:1]), Robustness([[40.0, 30.0]], [[40.0, 20.0]], 8, (96, 128))
    )
    assert sentence.endswith(
        "Of each image, only 128×96 pixels were measured, those around the rarest class that it shows, so scores "
        "differ from those of whole images."
    )


def test_the_best_of_several_under_strong_perturbation(copies: list[Path], tmp_path: Path) -> None:
    """With three runs, the one ahead is named where it is clearly ahead."""
    runs = read_runs([*copies, Path(shutil.copytree(copies[1], tmp_path / "third"))])
    found = Robustness(
        [[40.0, end] for end in (10.0, 20.0, 30.0)], [[40.0, end] for end in (10.0, 29.0, 30.0)], 8, None
    )
    sentence = robustness_words.robustness_text(runs, found)
    assert "third ahead with 30.0 % mIoU" in sentence
    assert "a warp leaves no run clearly ahead" in sentence


def test_counts_of_other_images_are_not_used(copies: list[Path]) -> None:
    """Runs of earlier versions have none. Without them, no interval is said."""
    assert read_runs(copies)[0].interval is not None
    file = copies[0] / "validation.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    for kept in (lines[1:], lines[::-1], []):
        file.write_text("".join(kept), encoding="utf-8")
        found = read_runs(copies)
        assert found[0].interval is None
        assert "interval" not in words.lead(found) + words.lead(found[:1])
    file.unlink()
    assert read_runs(copies)[0].interval is None
