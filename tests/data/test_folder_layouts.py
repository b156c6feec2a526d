"""Each layout is found: which images there are, which of them have a mask, and what part they play."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from data.folders import SCENE, coco, labelled, listing, mask, names, pairs, photo, refusal, write
from oneway.config import Data
from oneway.data import list_files
from oneway.data.folder import find


def test_images_and_masks(tmp_path):
    """Of the same path below their folders, but for the suffix; without mask is without labels."""
    pairs(tmp_path)
    photo(tmp_path / "images" / "deep" / "er" / "x.JPEG")
    mask(tmp_path / "masks" / "deep" / "er" / "x.PNG")
    photo(tmp_path / "images" / "free.webp")
    found = find(tmp_path)
    assert labelled(found.train) == [*(f"images/{index}.jpg" for index in range(4)), "images/deep/er/x.JPEG"]
    assert names(found.train)[-1] == "images/free.webp"
    assert not found.val
    assert not found.problems


@pytest.mark.parametrize(
    ("images", "masks"),
    [
        ("images", "masks"),
        ("images", "labels"),
        ("Images", "annotations"),
        ("JPEGImages", "SegmentationClass"),
    ],
)
def test_names_of_folders(tmp_path, images, masks):
    """In any case; CVAT's and VOC's as well."""
    photo(tmp_path / images / "a.jpg")
    mask(tmp_path / masks / "a.png")
    assert labelled(find(tmp_path).train) == [f"{images}/a.jpg"]


def test_train_val_and_unlabelled_with_folders_inside(tmp_path):
    """Each part has its own images and masks; the unlabelled ones need nothing."""
    pairs(tmp_path / "train", 3)
    pairs(tmp_path / "val", 2)
    photo(tmp_path / "unlabeled" / "images" / "u.jpg")
    found = listing(tmp_path)
    assert labelled(found.train) == [f"train/images/{index}.jpg" for index in range(3)]
    assert names(found.train)[3:] == ["unlabeled/images/u.jpg"]
    assert names(found.val) == ["val/images/0.jpg", "val/images/1.jpg"]
    assert not any("held out" in remark for remark in found.remarks)


def test_masks_beside_images(tmp_path):
    """X.jpg with X.png, X.png with X_mask.png, X.jpg with X_label.png; a PNG alone is an image."""
    for name in ("train/a.jpg", "train/b.png", "train/c.jpg", "train/d.png", "train/deep/a.jpg", "val/v.jpg"):
        photo(tmp_path / name)
    for name in ("train/a.png", "train/b_mask.png", "train/c_label.png", "train/deep/a.png", "val/v.png"):
        mask(tmp_path / name)
    photo(tmp_path / "unlabelled" / "deep" / "u.png")
    found = find(tmp_path)
    assert [(item.name, item.mask.name if item.mask else None) for item in found.train] == [
        ("train/a.jpg", "a.png"),
        ("train/b.png", "b_mask.png"),
        ("train/c.jpg", "c_label.png"),
        ("train/deep/a.jpg", "a.png"),
        ("train/d.png", None),
        ("unlabelled/deep/u.png", None),
    ]
    assert labelled(found.val) == ["val/v.jpg"]


def test_camvid_folders(tmp_path):
    """Train and trainannot, val and valannot."""
    for part in ("train", "val"):
        for index in range(2):
            photo(tmp_path / part / f"{part}{index}.png")
            mask(tmp_path / f"{part}annot" / f"{part}{index}.png")
    found = find(tmp_path)
    assert labelled(found.train) == ["train/train0.png", "train/train1.png"]
    assert labelled(found.val) == ["val/val0.png", "val/val1.png"]


def test_train_and_val_inside_images_and_masks(tmp_path):
    """images/train with masks/train, and so on."""
    for part in ("train", "val"):
        photo(tmp_path / "images" / part / "a.jpg")
        mask(tmp_path / "masks" / part / "a.png")
    photo(tmp_path / "images" / "unlabelled" / "u.jpg")
    found = find(tmp_path)
    assert names(found.train) == ["images/train/a.jpg", "images/unlabelled/u.jpg"]
    assert names(found.val) == ["images/val/a.jpg"]


def test_everything_in_one_folder(tmp_path):
    """Without any subfolder, masks are beside images."""
    photo(tmp_path / "a.jpg")
    mask(tmp_path / "a.png")
    photo(tmp_path / "b.jpg")
    assert names(find(tmp_path).train) == ["a.jpg", "b.jpg"]
    assert labelled(find(tmp_path).train) == ["a.jpg"]


def test_masks_may_have_a_marker_in_their_folder(tmp_path):
    """masks/a_mask.png belongs to images/a.jpg."""
    photo(tmp_path / "images" / "a.jpg")
    mask(tmp_path / "masks" / "a_mask.png")
    assert labelled(find(tmp_path).train) == ["images/a.jpg"]
    assert not find(tmp_path).problems


@pytest.mark.parametrize("place", ["instances.json", "annotations/instances.json"])
def test_coco_lists_by_path_or_by_name(tmp_path, place):
    """Below images/, below the folder, or by a name that no other image has; those it does not list have no labels."""
    for name in ("a.jpg", "deep/b.jpg", "deep/c.jpg", "free.jpg"):
        photo(tmp_path / "images" / name)
    coco(tmp_path / place, ["a.jpg", "images/deep/b.jpg", "elsewhere\\c.jpg", "gone.jpg"])
    found = find(tmp_path)
    assert labelled(found.train) == ["images/a.jpg", "images/deep/b.jpg", "images/deep/c.jpg"]
    assert names(found.train)[-1] == "images/free.jpg"
    assert [problem.file for problem in found.problems] == [tmp_path / place]
    assert "gone.jpg" in found.problems[0].message
    result = listing(tmp_path)
    assert result.classes == ("background", "road", "car")
    assert all(np.array_equal(result.read_labels(item), SCENE) for item in result.val)


def test_coco_in_each_part(tmp_path):
    """Beside the images, one file for training and one for validation; their categories must agree."""
    for part in ("train", "valid"):
        photo(tmp_path / part / "a.jpg")
        coco(tmp_path / part / "_annotations.coco.json", ["a.jpg"])
    found = listing(tmp_path)
    assert (names(found.train), names(found.val)) == (["train/a.jpg"], ["valid/a.jpg"])
    file = tmp_path / "valid" / "_annotations.coco.json"
    file.write_text(file.read_text().replace("car", "truck"))
    assert f"{file}: its categories differ" in refusal(tmp_path)


def test_images_coco_lists_without_annotation_are_remarked_upon(tmp_path):
    """They count as background, which hurts if nobody has looked at them."""
    for name in ("a.jpg", "b.jpg"):
        photo(tmp_path / "images" / name)
    file = coco(tmp_path / "instances.json", ["a.jpg", "b.jpg"])
    tree = json.loads(file.read_text())
    tree["annotations"] = [entry for entry in tree["annotations"] if entry["image_id"] == 0]
    file.write_text(json.dumps(tree))
    assert any("1 images are listed without an annotation (images/b.jpg" in text for text in listing(tmp_path).remarks)


def test_other_json_files_are_no_annotations(tmp_path):
    """One of another kind, and one beside each image; two of COCO's have to be told apart."""
    for index in range(12):
        photo(tmp_path / "many" / f"{index}.jpg")
        mask(tmp_path / "many" / f"{index}.png")
        write(tmp_path / "many" / f"{index}.json", "{}")
    assert len(labelled(find(tmp_path / "many").train)) == 12
    photo(tmp_path / "one" / "images" / "a.jpg")
    coco(tmp_path / "one" / "a.json", ["a.jpg"])
    write(tmp_path / "one" / "info.json", '{"images": []}')
    assert labelled(find(tmp_path / "one").train) == ["images/a.jpg"]
    coco(tmp_path / "one" / "b.json", ["a.jpg"])
    assert "a.json, b.json all hold annotations" in refusal(tmp_path / "one")


def test_another_folder_of_unlabelled_images(tmp_path):
    """All its images join without labels, under names of their own, even if it is the same folder or one around it."""
    root = pairs(tmp_path / "data", 2)
    photo(tmp_path / "pool" / "0.jpg")
    photo(tmp_path / "pool" / "deep" / "1.png")
    found = find(root, tmp_path / "pool")
    assert names(found.train)[2:] == ["unlabelled/0.jpg", "unlabelled/deep/1.png"]
    photo(root / "unlabelled" / "0.jpg")
    assert names(find(root, tmp_path / "pool").train)[2:] == [
        "unlabelled/0.jpg",
        "unlabelled_/0.jpg",
        "unlabelled_/deep/1.png",
    ]
    assert len(find(root, root).train) == 3
    assert len(find(root, tmp_path).train) == 5


def test_a_validation_set_is_held_out(tmp_path):
    """A quarter of eight, the same for the same seed, and never all; a remark says how many."""
    pairs(tmp_path, 8)
    photo(tmp_path / "images" / "free.jpg")
    first, again, other = listing(tmp_path), listing(tmp_path), listing(tmp_path, seed=1)
    assert len(first.val) == 2
    assert names(first.val) == names(again.val) != names(other.val)
    assert not {*names(first.train)} & {*names(first.val)}
    assert len(labelled(first.train)) == 6
    assert names(first.train)[-1] == "images/free.jpg"
    assert any("2 of the 8 labelled images are held out" in remark for remark in first.remarks)
    assert len(listing(tmp_path, holdout=0.999).val) == 7
    assert len(listing(tmp_path, holdout=0.001).val) == 1


def test_all_labelled_images_validate_where_that_is_asked_for(tmp_path):
    """As for a model that was trained elsewhere; a validation set of the folder's own stays what it is."""
    pairs(tmp_path / "whole", 3)
    photo(tmp_path / "whole/images/free.jpg")
    found = list_files(Data(name="folder", path=tmp_path / "whole"), all_validate=True)
    assert names(found.val) == [f"images/{index}.jpg" for index in range(3)]
    assert names(found.train) == ["images/free.jpg"]
    for split, count in (("train", 3), ("val", 2)):
        pairs(tmp_path / "split" / split, count)
    found = list_files(Data(name="folder", path=tmp_path / "split"), all_validate=True)
    assert (len(found.train), len(found.val)) == (3, 2)


def test_a_listing_can_be_sent_to_other_processes(tmp_path):
    """What reads the labels is a plain value."""
    found = listing(pairs(tmp_path))
    read = pickle.loads(pickle.dumps(found.read_labels))
    assert np.array_equal(read(found.val[0]), SCENE)
