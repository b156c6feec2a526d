"""Which runs stand side by side on a page: those that were validated on the same images, whatever they trained on."""

from __future__ import annotations

import io
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import oneway
from files import change_json
from oneway.common.errors import UserError
from oneway.config import build, merge
from oneway.config.recipes import recipe
from oneway.runs import open_run
from oneway.tools.evaluate_run import evaluate_run
from oneway.tools.report import cautions, words, write_report
from oneway.tools.report.reading import read_runs
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


def test_the_line_that_names_images_to_validate_has_the_folders_of_the_set(copies: list[Path], tmp_path: Path) -> None:
    """Where it is a folder that is still there; as it is read, also by its own description."""
    data, labels = tmp_path / "voc", np.zeros((4, 4), np.uint8)
    for part, suffix in (("JPEGImages", "jpg"), ("SegmentationClass", "png")):
        (data / part).mkdir(parents=True)
        Image.fromarray(labels).save(data / part / f"a.{suffix}")
    for copy in copies:
        with_data(copy, name="folder", path=data)
    change_json(copies[1] / "split.json", validation="0123456789abcdef")
    change_json(copies[1] / "split.json", validating=[])
    with pytest.raises(
        UserError, match=re.escape("`val: {images: JPEGImages, masks: SegmentationClass, list: val.txt}`")
    ):
        read_runs(copies)
    shutil.rmtree(data)
    with pytest.raises(UserError, match=re.escape("`val: {images: images, masks: masks, list: val.txt}`")):
        read_runs(copies)


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


def photographs(root: Path) -> dict[str, np.ndarray]:
    """Eight images of noise, none with a mask yet, and the labels of each by its name."""
    numbers = np.random.default_rng(0)
    for kind in ("images", "masks"):
        (root / kind).mkdir(parents=True)
    (root / "dataset.yaml").write_text("classes: [ground, road]\n", encoding="utf-8")
    truth = {f"images/{name}.png": numbers.integers(2, size=(32, 64)).astype(np.uint8) for name in "abcdefgh"}
    for name in truth:
        Image.fromarray(numbers.integers(256, size=(32, 64, 3)).astype(np.uint8)).save(root / name)
    return truth


def trained(photos: Path, run: Path) -> Path:
    """A run of a few iterations on a folder as it is now."""
    changes = merge(SMALL, {"labels": "all", "data": {"path": photos, "cache": photos.parent / "cache"}})
    config = build(merge(recipe("folder").model_dump(), merge(changes, {"model": {"weights": None}})), source="test")
    train(config.changed(data={"refresh": True}), run, False, QUIET)
    return run


def draw(photos: Path, truth: dict[str, np.ndarray], names: str) -> None:
    """Masks for some of the images."""
    for name in names:
        Image.fromarray(truth[f"images/{name}.png"]).save(photos / "masks" / f"{name}.png")


def test_runs_before_and_after_more_labels_are_compared_by_images_that_taught_neither(tmp_path: Path) -> None:
    """As suggest, label, train, report go: what is held out changes with the labels; both are scored anew."""
    photos = tmp_path / "photos"
    truth, runs = photographs(photos), [tmp_path / "first", tmp_path / "second"]
    for run, labelled in zip(runs, ("abcd", "abcdefg"), strict=True):
        draw(photos, truth, labelled)
        trained(photos, run)
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


def test_images_of_a_group_count_as_one(tmp_path: Path) -> None:
    """In the interval of a score, and where it is said that few validate."""
    photos, numbers = tmp_path / "photos", np.random.default_rng(0)
    for kind in ("images", "masks"):
        (photos / kind).mkdir(parents=True)
    (photos / "dataset.yaml").write_text("groups: (*)_*\n")
    for index in range(60):
        for kind, high, shape in (("images", 256, (32, 64, 3)), ("masks", 2, (32, 64))):
            pixels = numbers.integers(high, size=shape).astype(np.uint8)
            Image.fromarray(pixels).save(photos / kind / f"p{index // 6}_{index % 6}.png")
    run = trained(photos, tmp_path / "run")
    assert len(open_run(run).split.validating) == 12
    assert open_run(run).summary["interval"] is None
    (facts,) = read_runs([run])
    assert facts.interval is None
    assert [name.split("/")[1].split("_")[0] for name in facts.validating] == [*facts.groups]
    assert "rests on 2 groups of 12 validation images, too few" in cautions.caution([facts])
    scores = evaluate_run(run, "val", None, QUIET)
    assert (scores["interval"], {*scores["class_intervals"].values()}) == (None, {None})


def test_runs_with_other_classes_are_scored_on_those_that_they_share(tmp_path: Path) -> None:
    """As the refusal says: the same pixels count for both, and what the labels do not name costs neither anything."""
    photos, new, numbers = tmp_path / "photos", tmp_path / "new", np.random.default_rng(1)
    truth, runs = photographs(photos), [tmp_path / "first", tmp_path / "second"]
    labels = {name: numbers.integers(3, size=(32, 64)).astype(np.uint8) for name in truth}
    for run, classes in zip(runs, ("[ground, road, sky]", "[ground, car, sky]"), strict=True):
        (photos / "dataset.yaml").write_text(f"classes: {classes}\n", encoding="utf-8")
        draw(photos, labels, "abcd")
        trained(photos, run)
    with pytest.raises(UserError) as error:
        write_report(runs, tmp_path / "page.html")
    assert str(error.value) == (
        f"{runs[0]} and {runs[1]} cannot be compared: classes are road only in {runs[0]}; car only in {runs[1]}. For "
        f"comparable scores: oneway eval {runs[0]} --data DIR; oneway eval {runs[1]} --data DIR, with new images in "
        "DIR that have masks, and a dataset.yaml in which `classes` names only ground and sky, and `ignore` the "
        "values of all others."
    )
    for kind in ("images", "masks"):
        (new / kind).mkdir(parents=True)
    (new / "dataset.yaml").write_text("classes: {0: ground, 2: sky}\nignore: [1]\n", encoding="utf-8")
    for name in ("u", "v"):
        Image.fromarray(numbers.integers(256, size=(32, 64, 3)).astype(np.uint8)).save(new / f"images/{name}.png")
    draw(new, {"images/u.png": labels["images/a.png"], "images/v.png": labels["images/b.png"]}, "uv")
    counted = [np.sum(evaluate_run(run, "val", new, QUIET)["confusion"], axis=1).tolist() for run in runs]
    drawn = np.bincount(np.concatenate([labels[f"images/{name}.png"].ravel() for name in "ab"]))
    assert counted[0] == counted[1] == [drawn[0], 0, drawn[2]]


def test_predictions_compare_no_runs(tmp_path: Path) -> None:
    """An image that an earlier version held out, with the first run's own prediction for a mask, is left out."""
    photos = tmp_path / "photos"
    truth = photographs(photos)
    draw(photos, truth, "abcd")
    first = trained(photos, tmp_path / "first")
    draw(photos, truth, "ef")
    second = trained(photos, tmp_path / "second")
    oneway.load(first, device="cpu").predict(photos / "images/h.png").save(photos / "masks/h.png")
    split = open_run(second).split
    everything = {*open_run(first).split.validating, *split.validating} - {*open_run(first).split.labelled}
    both = sorted(everything - {*split.labelled})
    change_json(second / "split.json", validating=[*split.validating, "images/h.png"], validation="0123456789abcdef")
    page = write_report([first, second], tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"scored here by {len(both)} image" in page
    assert "images/h.png" not in page
    change_json(first / "split.json", validating=["images/h.png"])
    change_json(second / "split.json", validating=["images/h.png", open_run(first).split.labelled[0]])
    with pytest.raises(UserError, match=r"have masks as `oneway predict` wrote them \(images/h.png\)"):
        write_report([first, second], tmp_path / "page.html")


def test_a_page_says_that_it_rests_on_predictions(tmp_path: Path) -> None:
    """Of a run that was validated by some; `eval` says so as well, and the headline of a page does not stand alone."""
    photos = tmp_path / "photos"
    truth = photographs(photos)
    draw(photos, truth, "abcd")
    run = trained(photos, tmp_path / "first")
    assert (
        "No validation set: 1 of the 4 images with a mask is held out to validate."
        in open_run(run).summary["about_images"]
    )
    (name, *_) = open_run(run).split.validating
    oneway.load(run, device="cpu").predict(photos / name).save(photos / "masks" / Path(name).name)
    said = io.StringIO()
    console = Console(file=said, width=10_000)
    page = write_report([run], None, refresh=True, console=console).read_text(encoding="utf-8")
    caution = f"1 of 1 mask behind these scores is as `oneway predict` wrote it ({name})"
    assert f'<p class="caution">{caution}' in page
    evaluate_run(run, "val", None, console, refresh=True)
    assert said.getvalue().count(caution) == 2


def test_labels_that_are_the_predictions_of_the_first_run_are_said(copies: list[Path]) -> None:
    """Where no file says what they were made from, the agreement does; a single run proves nothing."""
    runs = read_runs(copies)
    assert not cautions.like_predictions(runs)
    agreeing = replace(runs[0], confusion=np.diag([99_000, 900, 0, *[0] * 6]) + np.eye(9, dtype=int), value=99.0)
    assert "100.0 % of the labelled pixels that validate are just what" in cautions.like_predictions(
        [agreeing, runs[1]]
    )
    assert not cautions.like_predictions([agreeing])
