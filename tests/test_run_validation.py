"""Which images a run on a folder without a validation set is judged by later: those that were held out for it."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from oneway.common.errors import UserError
from oneway.config import build, merge
from oneway.config.recipes import recipe
from oneway.data import list_files, streets
from oneway.data.mask_style import MaskStyle
from oneway.runs import open_run
from oneway.tools.evaluate_run import evaluate_run
from oneway.tools.report import write_report
from oneway.tools.run_data import load_data, read_split
from oneway.tools.train import train
from small_runs import QUIET, SMALL

LABELLED, UNLABELLED = 8, 6


def write_mask(root: Path, number: int) -> None:
    Image.fromarray(streets.render(6, number, 32, 64)[1]).save(root / "masks" / f"{number:02d}.png")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Street scenes, the first of them with masks, whose classes nothing names; and a run of two iterations."""
    place = tmp_path_factory.mktemp("trained")
    root = place / "photos"
    for kind in ("images", "masks"):
        (root / kind).mkdir(parents=True)
    for number in range(LABELLED + UNLABELLED):
        Image.fromarray(streets.render(6, number, 32, 64)[0]).save(root / "images" / f"{number:02d}.png")
        if number < LABELLED:
            write_mask(root, number)
    settings = {"path": root, "cache": place / "cache"}
    changes = {"labels": "all", "data": settings, "model": {"weights": None}, "train": {"iterations": 2}}
    train(
        build(merge(merge(recipe("folder").model_dump(), SMALL), changes), source="test"), place / "run", False, QUIET
    )
    return place


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """The same, with data of its own."""
    for name in ("photos", "run", "cache"):
        shutil.copytree(trained / name, tmp_path / name)
    opened = open_run(tmp_path / "run")
    config = opened.config.changed(data={"path": tmp_path / "photos", "cache": tmp_path / "cache"})
    replace(opened, config=config).write_settings(opened.split)
    return tmp_path / "run"


def evaluated(run: Path, data: Path | None = None) -> tuple[dict[str, Any], str]:
    """The scores, and what is said."""
    said = io.StringIO()
    return evaluate_run(run, "val", data, Console(file=said, width=10_000), cache=run.parent / "cache"), said.getvalue()


def label_until_another_validates(run: Path) -> None:
    """Draws a mask for the first image without one that would displace another among those that are held out."""
    held_out, root = {*open_run(run).split.validating}, run.parent / "photos"
    for number in range(LABELLED, LABELLED + UNLABELLED):
        write_mask(root, number)
        if held_out - {item.name for item in list_files(open_run(run).config.data).val}:
            return
        (root / "masks" / f"{number:02d}.png").unlink()
    raise AssertionError("no mask would change what is held out")


def test_a_mask_more_changes_no_score_of_a_run(run: Path) -> None:
    """Though another image would be held out by now, the run is scored on its own, whichever command comes first."""
    before, _ = evaluated(run)
    label_until_another_validates(run)
    for _ in range(2):
        after, said = evaluated(run)
        assert after == before
        assert "Note" not in said
    said = io.StringIO()
    write_report([run], None, console=Console(file=said), cache=run.parent / "cache")
    assert "Note" not in said.getvalue()
    assert evaluated(run, Path(shutil.copytree(run.parent / "photos", run.parent / "moved")))[0] == before


def test_labels_that_taught_what_a_run_began_with_are_no_proof_of_it(run: Path) -> None:
    """Weights of an earlier run, with other images held out, have learnt what now validates: it is said every time."""
    first = open_run(run)
    taught = {*first.split.labelled}
    others = (first.config.changed(data={"seed": seed}) for seed in range(1, 99))
    config = next(one for one in others if taught >= {item.name for item in list_files(one.data).val})
    for name, weights in (("second", run), ("third", run.parent / "second" / "model.safetensors")):
        said = io.StringIO()
        path, config = run.parent / name, config.changed(model={"weights": str(weights)})
        train(config, path, False, Console(file=said, width=10_000))
        found = sorted(open_run(path).split.validating)
        doubt = f"{path} began with a model that had learnt the labels of 2 of the 2 images behind these scores"
        assert f"{doubt} ({', '.join(found[:-1])} and {found[-1]}): they are too high" in said.getvalue()
        assert f"Note: {doubt}" in evaluated(path)[1]
        assert doubt in write_report([path], None, console=QUIET, cache=run.parent / "cache").read_text()
    with pytest.raises(UserError, match="was trained on the labels of all its 2 images"):
        evaluated(path, Path(shutil.copytree(run.parent / "photos", run.parent / "moved")))
    train(first.config.changed(model={"weights": str(run)}), run.parent / "longer", False, QUIET)
    assert "began with" not in evaluated(run.parent / "longer")[1]  # the same images are held out


def test_labels_that_taught_a_run_before_it_was_changed_are_no_proof_of_it(run: Path) -> None:
    """Continued with other images held out, by `--allow-changes`, it has learnt what validates now."""
    first = open_run(run)
    others = (first.config.changed(data={"seed": seed}, train={"iterations": 3}) for seed in range(1, 99))
    taught = {*first.split.labelled}
    config = next(one for one in others if taught >= {item.name for item in list_files(one.data).val})
    (run / "summary.json").unlink()
    said = io.StringIO()
    train(config, run, True, Console(file=said, width=10_000), allow_changes=True)
    doubt = f"Note: {run} began with a model that had learnt the labels of 2 of the 2 images behind these scores"
    assert doubt in said.getvalue()
    assert doubt in evaluated(run)[1]
    with pytest.raises(UserError, match="was trained on the labels of all its 2 images"):
        evaluated(run, Path(shutil.copytree(run.parent / "photos", run.parent / "moved")))


def lose_a_mask(root: Path, name: str) -> None:
    (root / "masks" / Path(name).name).unlink()


def lose_an_image(root: Path, name: str) -> None:
    lose_a_mask(root, name)
    (root / name).unlink()


@pytest.mark.parametrize("lose", [lose_a_mask, lose_an_image])
@pytest.mark.parametrize("another", [False, True])
def test_images_that_are_gone_are_named_every_time(run: Path, lose: Callable[..., None], another: bool) -> None:
    """The others are scored, and no image takes the place of one that is gone."""
    gone, *others = open_run(run).split.validating
    evaluated(run)  # which remembers what the files are
    if another:
        label_until_another_validates(run)
    lose(run.parent / "photos", gone)
    for _ in range(2):
        scores, said = evaluated(run)
        assert scores["samples"] == len(others) == 1
        assert f"1 of the 2 images that validated {run} in training is gone, or without labels ({gone})" in said


def test_a_validation_set_that_is_named_later_is_used_and_said(run: Path) -> None:
    """Every time: scores are no longer of the images of training."""
    root = run.parent / "photos"
    for kind in ("images", "masks"):
        (root / "val" / kind).mkdir(parents=True)
    Image.fromarray(streets.render(7, 0, 32, 64)[0]).save(root / "val/images/new.png")
    Image.fromarray(streets.render(7, 0, 32, 64)[1]).save(root / "val/masks/new.png")
    (root / "dataset.yaml").write_text(
        "train: {images: images, masks: masks}\nval: {images: val/images, masks: val/masks}\n", encoding="utf-8"
    )
    for _ in range(2):
        scores, said = evaluated(run)
        assert scores["samples"] == 1
        assert f"other images validate {run} than in training (1 new: val/images/new.png; 2 no longer: images/" in said


def test_changed_labels_of_validation_images_are_said(run: Path) -> None:
    """Where they are decoded anew and nothing else notices it."""
    shutil.rmtree(run.parent / "cache")
    name = open_run(run).split.validating[0]
    mask = run.parent / "photos/masks" / Path(name).name
    Image.fromarray(np.flip(np.array(Image.open(mask)), axis=1)).save(mask)
    assert "are not as they were in training" in evaluated(run)[1]


def test_a_run_of_the_first_version_is_judged_by_what_is_held_out_now(run: Path) -> None:
    """It does not say which images validated it."""
    label_until_another_validates(run)
    opened = open_run(run)
    opened.write_settings(replace(opened.split, validating=()))
    found = read_split(
        open_run(run), "val", tuple(evaluated(run)[0]["per_class"]), None, QUIET, cache=run.parent / "cache"
    )
    assert {*found.samples.names} == {item.name for item in list_files(opened.config.data).val}
    assert {*found.samples.names} != {*opened.split.validating}


def other_folder(run: Path, largest: int) -> Path:
    """New scenes whose masks hold no number above `largest`: 0 in place of it."""
    root = run.parent / "other"
    for kind in ("images", "masks"):
        (root / kind).mkdir(parents=True)
    for number in range(3):
        image, labels = streets.render(9, number, 32, 64)
        Image.fromarray(image).save(root / "images" / f"{number}.png")
        Image.fromarray(np.where(labels > largest, 0, labels).astype(np.uint8)).save(root / "masks" / f"{number}.png")
    return root


@pytest.mark.parametrize("largest", [3, 1])
def test_a_folder_without_some_classes_is_scored(run: Path, largest: int) -> None:
    """Where classes are called by the numbers in masks, these say which they are: even 0 and 1 alone."""
    scores, _ = evaluated(run, other_folder(run, largest))
    assert scores["samples"] == 3
    assert [*scores["per_class"]] == [*evaluated(run)[0]["per_class"]]
    assert {f"class {number}" for number in range(largest + 1, len(scores["per_class"]))} <= {*scores["absent"]}


def test_classes_that_are_named_otherwise_are_refused_by_their_difference(run: Path) -> None:
    """With the way out."""
    other = other_folder(run, 1)
    (other / "dataset.yaml").write_text("classes: [class 0, road]\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"other: has road, which .*lacks class 1, class 2, class 3 and .*`classes: \[class 0,"
    ):
        evaluated(run, other)


def test_a_run_that_is_continued_keeps_the_images_held_out_for_it(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever this version would hold out; another share asked for is a change of the run."""
    config = open_run(trained / "run").config.changed(data={"cache": tmp_path / "cache"})
    with monkeypatch.context() as earlier:
        earlier.setattr("oneway.data.folder.listing.hold_out", lambda labelled, *rest: tuple(labelled[:2]))
        earlier.setattr("oneway.data.folder.listing.with_all_classes", lambda plain, *rest: plain)
        train(config, tmp_path / "run", False, QUIET)
    split = open_run(tmp_path / "run").split
    assert {*split.validating} != {*open_run(trained / "run").split.validating}
    (tmp_path / "run/summary.json").unlink()
    train(config, tmp_path / "run", True, QUIET)
    assert open_run(tmp_path / "run").split == split
    (tmp_path / "run/summary.json").unlink()
    with pytest.raises(UserError, match="continuing would change the run"):
        train(config.changed(data={"holdout": 0.4}), tmp_path / "run", True, QUIET)


def test_masks_that_name_nothing_are_read_by_the_values_of_the_run(run: Path, tmp_path: Path) -> None:
    """What it calls `class 3` from a colour is not what others call so from a number, and is refused."""
    root = run.parent / "photos"
    numbers = {name: np.array(Image.open(root / "masks" / name)) % 9 for name in ("00.png", "01.png")}
    colours = np.random.default_rng(0).permutation(256**3)[:9]
    palette = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.uint8)
    painted = MaskStyle(mode="RGB", values=tuple(map(int, colours)))
    new = tmp_path / "new"
    for kind in ("images", "masks"):
        (new / kind).mkdir(parents=True)
    for name in numbers:
        shutil.copy(root / "images" / name, new / "images" / name)
        Image.fromarray(palette[numbers[name]]).save(new / "masks" / name)
    opened, names = open_run(run), tuple(f"class {number}" for number in range(9))
    settings = opened.config.data.model_copy(update={"path": new})
    found = load_data(opened, names, settings, QUIET, True, masks=painted)
    assert np.array_equal(found.read("val").label_map(0), numbers["00.png"])
    for name, labels in numbers.items():
        Image.fromarray(labels).save(new / "masks" / name)
    with pytest.raises(UserError, match=r"new: its masks hold \d for class \d, and those that taught .*run \[\d+, "):
        load_data(opened, names, settings, QUIET, True, masks=painted)


def test_numbers_without_names_are_those_of_the_run(run: Path) -> None:
    """As in a test set whose table of names lies elsewhere; what was taken for what is said."""
    said, opened, other = io.StringIO(), open_run(run), other_folder(run, 3)
    names = tuple("abcdefghi")
    settings = opened.config.data.model_copy(update={"path": other})
    style = MaskStyle(mode="L", values=tuple(range(9)))
    found = load_data(opened, names, settings, Console(file=said, width=10_000), True, masks=style)
    assert found.classes == names
    assert "masks are read as those of the run, 0 as a, 1 as b" in said.getvalue()
    with pytest.raises(UserError, match=re.escape("write `classes: {10: a, 11: b, 12: c")):
        load_data(opened, names, settings, QUIET, True, masks=MaskStyle(mode="L", values=tuple(range(10, 19))))


def test_classes_that_a_folder_names_may_be_fewer_and_in_another_order(run: Path) -> None:
    """Each is the run's of that name."""
    opened, other = open_run(run), other_folder(run, 2)
    (other / "dataset.yaml").write_text("classes: {0: sky, 1: car, 2: road}\n", encoding="utf-8")
    settings = opened.config.data.model_copy(update={"path": other})
    truth = np.array(Image.open(other / "masks/0.png"))
    for names in (("road", "sky", "tree", "car"), ("car", "road", "sky")):
        found = load_data(opened, names, settings, QUIET, True)
        expected = np.array([names.index(name) for name in ("sky", "car", "road")])[truth]
        assert np.array_equal(found.read("val").label_map(0), expected)


def test_annotations_that_lack_a_class_are_read_with_those_of_the_run(run: Path) -> None:
    """A class of the run that happens not to be drawn is absent; one that it does not know is refused."""
    opened, root = open_run(run), run.parent / "drawn"
    root.mkdir()
    for number, name in enumerate(("wall", "door")):
        Image.fromarray(streets.render(9, number, 32, 64)[0]).save(root / f"{number}.png")
        shape = {"label": name, "points": [[0, 0], [20, 10]], "shape_type": "rectangle"}
        (root / f"{number}.json").write_text(json.dumps({"shapes": [shape], "imagePath": f"{number}.png"}))
    settings = opened.config.data.model_copy(update={"path": root})
    found = load_data(opened, ("background", "window", "wall", "door"), settings, QUIET, True)
    assert np.unique(found.read("val").label_map(0)).tolist() == [0, 2]
    (root / "dataset.yaml").write_text("train: {images: ., labelme: .}\nclasses: [background, wall, door]\n")
    found = load_data(opened, ("background", "window", "door", "wall"), settings, QUIET, True)
    assert np.unique(found.read("val").label_map(0)).tolist() == [0, 3]
    with pytest.raises(
        UserError, match=re.escape("has door, which") + ".*" + "call what is drawn as there: background and wall"
    ):
        load_data(opened, ("background", "wall"), settings, QUIET, True)
