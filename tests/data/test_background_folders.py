"""Folders of images that show background alone need no masks: they train, and validate, as background all over."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from data.folders import SCENE, coco, labelled, listing, mask, names, pairs, photo, refusal, write
from oneway.config import Data
from oneway.data import load
from oneway.data.check import apply_rules
from oneway.data.check.survey import survey_all
from oneway.data.folder import find

PARTS = "train: {images: test, masks: ground_truth}"


def inspection(root: Path) -> Path:
    """As MVTec AD has it: masks of parts with a defect, and none of good ones."""
    for index in range(4):
        photo(root / "train" / "good" / f"{index}.png", index)
        photo(root / "test" / "good" / f"{index}.png", 10 + index)
        photo(root / "test" / "crack" / f"{index}.png", 20 + index)
        mask(root / "ground_truth" / "crack" / f"{index}_mask.png", 255 * (SCENE > 0))
    write(root / "dataset.yaml", PARTS)
    return root


def test_good_parts_are_background_where_a_description_says_so(tmp_path):
    """Among the images of a part, and beside them; they are unlabelled without it, and the line is given."""
    inspection(tmp_path)
    before = listing(tmp_path)
    assert Counter(item.labelled for item in (*before.train, *before.val)) == {True: 4, False: 4}
    (hint,) = [remark for remark in before.remarks if "test/good" in remark]
    assert "4 images in test/good have no labels" in hint
    assert "`background: [test/good]`" in hint
    write(tmp_path / "dataset.yaml", f"{PARTS}\nbackground: [train/good, test/good]")
    found = listing(tmp_path)
    every = (*found.train, *found.val)
    assert len(every) == 12
    assert all(item.labelled for item in every)
    good = [item for item in every if "/good/" in item.name]
    assert len(good) == 8
    assert all(item.background for item in good)
    for item in every:
        assert np.array_equal(found.read_labels(item), (SCENE > 0) & (item not in good)), item.name
    assert "8 images without labels in train/good and test/good show background alone, as dataset.yaml says." in (
        found.remarks
    )
    assert not any("have no labels" in remark for remark in found.remarks)
    assert found.val


def test_what_is_said_to_be_unlabelled_is_not_asked_about(tmp_path):
    """In the data set, and in a folder beside it."""
    inspection(tmp_path / "set")
    photo(tmp_path / "camera" / "good" / "9.png", 90)
    write(tmp_path / "set" / "dataset.yaml", f"{PARTS}\nunlabelled: train/good")
    found = listing(tmp_path / "set", tmp_path / "camera")
    (hint,) = [remark for remark in found.remarks if "have no labels" in remark]
    assert "`background: [test/good]`" in hint


def test_decoded_good_parts_have_labels(tmp_path, monkeypatch):
    """And with other folders of background, the labels of before are not used."""
    inspection(tmp_path / "parts")
    config = Data(name="folder", path=tmp_path / "parts", cache=tmp_path / "cache")

    def count() -> int:
        return load(config, Console(quiet=True)).read("train").labelled

    assert count() == 3
    write(tmp_path / "parts" / "dataset.yaml", f"{PARTS}\nbackground: test/good")
    samples = load(config, Console(quiet=True)).read("train")
    sides = {"good" in name: samples.label_map(index).max() for index, name in enumerate(samples.names)}
    assert (samples.labelled, sides) == (6, {True: 0, False: 1})


def test_a_folder_with_labels_is_doubted(tmp_path):
    """Its other images may only wait for their masks: they are counted."""
    pairs(tmp_path, 3)
    for index in range(5):
        photo(tmp_path / "images" / f"more{index}.jpg", 50 + index)
    write(tmp_path / "dataset.yaml", "background: images\nclasses: [background, road, car]")
    found = listing(tmp_path)
    (warning,) = [one for one in apply_rules(found, survey_all(found, found.items, int)) if "background" in one.kind]
    assert warning.message.startswith("in images, 3 images have labels, and the other 5 are taken for background")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("background: .", "`background` names ., where the masks are."),
        ("background: ground_truth/crack", "`background` names ground_truth/crack, where the masks are."),
        ("background: nowhere", "no such folder, though `background` names it"),
        ("background: train\nunlabelled: train", "both name train"),
        (
            "background: test/good\nclasses: {0: fine, 255: crack}",
            "no class is called background, of",
        ),
        ("unannotated: background", "write `background: [FOLDER, …]`"),
    ],
)
def test_what_cannot_be_background_is_refused(tmp_path, text, words):
    """Masks, a folder without a role, classes without a background, and the key that is about annotations."""
    inspection(tmp_path)
    write(tmp_path / "dataset.yaml", f"{PARTS}\n{text}")
    assert words in refusal(tmp_path)


def test_images_that_annotations_do_not_list(tmp_path):
    """A folder beside those that are listed; what a list of labelled images leaves out stays without labels."""
    for name in ("a.jpg", "b.jpg", "good/c.jpg"):
        photo(tmp_path / "images" / name)
    coco(tmp_path / "instances.json", ["a.jpg", "b.jpg"])
    write(tmp_path / "dataset.yaml", "background: images/good")
    found = listing(tmp_path)
    (good,) = [item for item in (*found.train, *found.val) if item.background]
    assert good.name == "images/good/c.jpg"
    assert not found.read_labels(good).any()
    lists = write(tmp_path / "list.txt", "images/a.jpg\nimages/b.jpg")
    part = json.dumps({"images": "images", "coco": "instances.json", "list": lists.name})
    write(tmp_path / "dataset.yaml", f"background: images/good\ntrain: {part}")
    assert not any(item.background for item in find(tmp_path).train)


def test_a_validation_set_of_good_parts(tmp_path):
    """Images without labels cannot validate; background can."""
    inspection(tmp_path)
    for index in range(2):
        photo(tmp_path / "held" / "good" / f"{index}.png", 60 + index)
        photo(tmp_path / "held" / "crack" / f"{index}.png", 70 + index)
        mask(tmp_path / "held_masks" / "crack" / f"{index}.png", 255 * (SCENE > 0))
    parts = f"{PARTS}\nval: {{images: held, masks: held_masks}}"
    write(tmp_path / "dataset.yaml", parts)
    assert len(listing(tmp_path).val) == 2
    write(tmp_path / "dataset.yaml", f"{parts}\nbackground: held/good")
    found = listing(tmp_path)
    assert len(found.val) == 4
    assert not find(tmp_path).problems
    assert names(found.val) != labelled(found.val) == ["held/crack/0.png", "held/crack/1.png"]
