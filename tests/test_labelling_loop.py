"""The loop of labelling: what a model predicts can be corrected and put back among the masks, and be learnt from."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from oneway.cli import app
from oneway.common.errors import UserError
from oneway.data.folder import list_folder
from oneway.tools.evaluate import evaluate_run
from oneway.tools.predict import Outputs, load, predict_files
from oneway.tools.train import train
from small_runs import QUIET, small_streets

VALUES = np.array([0, 2, 7, 15], np.uint8)


def photographs(root, count: int = 8, masks: int = 5, values: np.ndarray = VALUES) -> None:
    """Noise, each image its own, and masks of stripes."""
    random = np.random.default_rng(0)
    stripes = values[np.add.outer(np.arange(32), np.arange(64)) // 12 % len(values)]
    for kind in ("images", "masks"):
        (root / kind).mkdir(parents=True)
    for index in range(count):
        pixels = random.integers(256, size=(32, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / "images" / f"{index}.png")
        if index < masks:
            Image.fromarray(stripes).save(root / "masks" / f"{index}.png")


def configured(root, **changes):
    data = {"name": "folder", "path": root / "data", "cache": root / "cache"}
    return small_streets(recipe="folder", labels="all", data=data, **changes)


@pytest.mark.parametrize("values", [VALUES, np.array([0, 255], np.uint8)], ids=["scattered", "black and white"])
def test_predictions_come_back_as_the_labels_that_were_predicted(tmp_path, values):
    """Train, predict what has no mask, copy the masks back, check, train: no class becomes another or is ignored."""
    photographs(tmp_path / "data", values=values)
    train(configured(tmp_path), tmp_path / "run", resume=False, console=QUIET)
    before = list_folder(tmp_path / "data", None, 0.2, 0)
    known = {item.name: before.read_labels(item) for item in (*before.train, *before.val) if item.mask}
    model, new = load(tmp_path / "run", "cpu"), [f"{index}.png" for index in (5, 6, 7)]
    images = [tmp_path / "data" / "images" / name for name in new]
    assert predict_files(model, [str(image) for image in images], Outputs(tmp_path / "out"), QUIET) == 0
    for name, image in zip(new, images, strict=True):
        known[f"images/{name}"] = model.predict(image).labels
        shutil.copy(tmp_path / "out" / "masks" / name, tmp_path / "data" / "masks" / name)
    with pytest.raises(SystemExit) as status:
        app(["check", str(tmp_path / "data"), "--json"], result_action="return_value")
    assert status.value.code == 0
    after = list_folder(tmp_path / "data", None, 0.2, 0)
    assert after.classes == before.classes
    found = {item.name: after.read_labels(item) for item in (*after.train, *after.val) if item.mask}
    assert {name: labels.tolist() for name, labels in found.items()} == {
        name: labels.tolist() for name, labels in known.items()
    }
    train(configured(tmp_path, seed=1), tmp_path / "second", resume=False, console=QUIET)
    meanings = json.loads((tmp_path / "out" / "predictions.json").read_text())["masks"]
    assert list(meanings["values"].values()) == values.tolist()
    assert {*np.unique(Image.open(tmp_path / "out" / "masks" / "5.png"))} <= {*values.tolist()}


def test_class_indices_are_written_where_they_are_asked_for(tmp_path):
    """With --as indices, and by a model that an earlier version wrote."""
    photographs(tmp_path / "data")
    train(configured(tmp_path), tmp_path / "run", resume=False, console=QUIET)
    image = str(tmp_path / "data" / "images" / "7.png")
    for out, flags in (("a", ()), ("b", ("--as", "indices"))):
        with pytest.raises(SystemExit) as status:
            app(["predict", str(tmp_path / "run"), image, "--out", str(tmp_path / out), *flags])
        assert not status.value.code
    written, indices = (np.asarray(Image.open(tmp_path / out / "masks" / "7.png")) for out in ("a", "b"))
    assert np.array_equal(written, VALUES[indices])
    assert Image.open(tmp_path / "b" / "masks" / "7.png").mode == "P"


def told(**options) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=1000, **options), text


def test_images_that_taught_are_not_scored_in_another_folder(tmp_path):
    """Known by their pixels, under other names and in another format: left out and said; nothing else left is refused.

    What a run has seen without labels is scored, and said.
    """
    photographs(tmp_path / "data", count=9, masks=6)
    train(configured(tmp_path), tmp_path / "run", resume=False, console=QUIET)
    split = json.loads((tmp_path / "run" / "split.json").read_text())
    assert len(split["digests"]) == len(split["unlabelled"]) == 9 - len(split["validating"])
    validating, other = {Path(name).stem for name in split["validating"]}, tmp_path / "other"
    for kind in ("images", "masks"):
        (other / kind).mkdir(parents=True)
        for index in range(9):
            source = tmp_path / "data" / kind / f"{index if kind == 'images' else 0}.png"
            Image.open(source).save(other / kind / f"new{index}.{'bmp' if kind == 'images' else 'png'}")
    console, text = told()
    found = evaluate_run(tmp_path / "run", "val", other, console)
    assert found["samples"] == 3 + len(validating)
    assert len(found["left_out"]) == 6 - len(validating)
    assert f"Left out: {6 - len(validating)} of 9 images, whose labels taught" in text.getvalue()
    assert "has seen 3 of these images without labels" in text.getvalue()
    for index in [*validating, 6, 7, 8]:
        (other / "images" / f"new{index}.bmp").unlink()
        (other / "masks" / f"new{index}.png").unlink()
    with pytest.raises(UserError, match=r"was trained on the labels of all its .* images that it has not seen"):
        evaluate_run(tmp_path / "run", "val", other, QUIET, refresh=True)


def test_runs_of_earlier_versions_have_no_digests(tmp_path):
    """They are evaluated as before, and it is said that images are not recognised."""
    photographs(tmp_path / "data")
    train(configured(tmp_path), tmp_path / "run", resume=False, console=QUIET)
    split = json.loads((tmp_path / "run" / "split.json").read_text())
    shutil.copytree(tmp_path / "data", tmp_path / "other")
    del split["digests"], split["validating"]
    (tmp_path / "run" / "split.json").write_text(json.dumps(split))
    console, text = told()
    assert evaluate_run(tmp_path / "run", "val", tmp_path / "other", console)["samples"]
    assert "an earlier version trained" in text.getvalue()
