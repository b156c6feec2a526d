"""Each layout is found: which images there are, which of them have a mask, and what part they play."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from PIL import Image

from data.folders import SCENE, coco, labelled, listing, mask, names, pairs, photo, refusal, write
from oneway.config import Data
from oneway.data import list_files
from oneway.data.check import apply_rules
from oneway.data.check.survey import survey_all
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
    assert any("2 of the 8 images with a mask are held out" in remark for remark in first.remarks)
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


def test_a_second_folder_of_masks_is_mentioned(tmp_path):
    """With both names and how to choose; not where it is chosen, nor photographs, nor the objects of Pascal VOC."""
    pairs(tmp_path, 4)
    for name in ("masks_new/{}_mask.png", "SegmentationObject/{}.png"):
        for index in range(3):
            mask(tmp_path / name.format(index))
    for index in range(4):
        noise = np.random.default_rng(index).integers(256, size=(32, 32, 3), dtype=np.uint8)
        (tmp_path / "infrared").mkdir(exist_ok=True)
        Image.fromarray(noise).save(tmp_path / "infrared" / f"{index}.png")
    (told,) = [remark for remark in listing(tmp_path).remarks if "fit as well" in remark]
    assert "Masks are those in masks; the ones in masks_new fit as well (3 of 3)." in told.replace("of 4", "of 3")
    assert "`train: {images: images, masks: masks_new}` into dataset.yaml" in told
    write(tmp_path / "dataset.yaml", "train: {images: images, masks: masks_new}")
    found = listing(tmp_path)
    assert not any("fit as well" in remark for remark in found.remarks)
    assert all(item.mask.parent.name == "masks_new" for item in (*found.train, *found.val) if item.mask)


@pytest.mark.parametrize(("kind", "advice"), [("PNG", "and alpha is not"), ("TIFF", "`bands: [4, 3, 2]`")])
def test_images_with_a_fourth_band_are_said(tmp_path, kind, advice):
    """Once for all of them; nobody is told to take alpha for red."""
    pairs(tmp_path, 4)
    for index in range(2):
        (tmp_path / "images" / f"{index}.jpg").unlink()
        Image.new("RGBA", SCENE.shape[::-1], (index, 0, 0, 9)).save(tmp_path / "images" / f"{index}.{kind.lower()}")
    found = listing(tmp_path)
    told = [one for one in apply_rules(found, survey_all(found, found.items, int)) if "Bands" in one.kind]
    assert len(told) == 1
    assert told[0].message.startswith("2 of 4 images have a band besides their colours")
    assert advice in told[0].message
    assert ("[4, 3, 2]" in told[0].message) == (kind == "TIFF")


@pytest.mark.parametrize(
    ("images", "masks"),
    [
        ("{}_image.png", "{}_mask.png"),
        ("image/{}.png", "mask/{}.png"),
        ("image/{}.jpg", "label/{}.png"),
        ("img/{}.jpg", "gt/{}.png"),
        ("images/{}_image.jpg", "masks/{}_mask.png"),
        ("images/{}_sat.jpg", "masks/{}.png"),
        ("train/{}_sat.jpg", "train/{}_mask.png"),
    ],
)
def test_pairs_and_folders_called_otherwise(tmp_path, images, masks):
    """What names share is what pairs them."""
    for name in ("1", "2", "deep_3"):
        photo(tmp_path / images.format(name))
        mask(tmp_path / masks.format(name))
    found = find(tmp_path)
    assert labelled(found.train) == sorted(images.format(name) for name in ("1", "2", "deep_3"))
    assert not found.problems
    assert all(
        item.mask == tmp_path / masks.format(item.image.stem.split("_image")[0].split("_sat")[0])
        for item in found.train
    )


def test_one_folder_too_high_and_archives(tmp_path):
    """The subfolder is named, or the command that unpacks."""
    pairs(tmp_path / "export" / "photos", 4)
    (tmp_path / "export" / "docs").mkdir()
    assert f"{tmp_path / 'export' / 'photos'} looks like a data set: name that folder." in refusal(tmp_path / "export")
    write(tmp_path / "my export.zip", "")
    told = refusal(tmp_path / "my export.zip")
    assert "an archive. Unpack it, and name the folder: unzip '" in told
    assert told.endswith(f"-d '{tmp_path / 'my export'}'")


def test_annotations_in_a_folder_of_their_own_belong_beside_the_images(tmp_path):
    """As an export without images is unpacked: that folder is no data set by itself."""
    for index in range(4):
        photo(tmp_path / f"{index}.jpg")
    file = coco(tmp_path / "export" / "instances.json", [f"{index}.jpg" for index in range(4)])
    assert f"{file} holds annotations, and no image lies beside it: move it into {tmp_path}" in refusal(tmp_path)
    file.rename(tmp_path / file.name)
    assert len(listing(tmp_path).items) == 4


def test_annotations_of_names_that_several_images_have_are_refused_with_the_reason(tmp_path):
    """As a tool that flattens folders lists them: it is not known which image is meant."""
    for day in ("monday", "tuesday"):
        for index in range(3):
            photo(tmp_path / "images" / day / f"{index}.jpg")
    coco(tmp_path / "annotations" / "all.json", [f"{index}.jpg" for index in range(3)])
    message = refusal(tmp_path)
    assert "annotations/all.json annotates none of 6 training images. It has to list them by their names" in message
    assert "several have this name" in message


@pytest.mark.parametrize("inside", ["images", "masks", "train/images", "val/masks"])
def test_one_folder_too_deep(tmp_path, inside):
    """The data set is the folder above, and nobody is told to put images into a folder of images."""
    for part in ("train", "val") if "/" in inside else ("",):
        pairs(tmp_path / "photos" / part, 4)
    named = tmp_path / "photos" / inside
    assert refusal(named) == (
        f"{named}: none of its images has labels. It is part of {tmp_path / 'photos'}, which looks like a data set: "
        "name that folder."
    )


@pytest.mark.parametrize("inside", ["images", "labels", "images/train", "labels/val", "images/test"])
def test_one_folder_too_deep_in_a_yolo_export(tmp_path, inside):
    """Or the file that names its classes, as YOLO wants it."""
    for part in ("train", "val", "test"):
        photo(tmp_path / "images" / part / f"{part}.jpg")
        write(tmp_path / "labels" / part / f"{part}.txt", "0 0.1 0.1 0.9 0.1 0.9 0.9\n")
    file = write(tmp_path / "data.yaml", "train: images/train\nval: images/val\nnames: [road]\n")
    assert f"It is part of {tmp_path}, which looks like a data set: name that folder" in refusal(tmp_path / inside)
    assert refusal(file).endswith(f"Name the folder that holds both: {tmp_path}")


@pytest.mark.parametrize("own", ["plates/dataset.yaml", "plates/classes.txt", "plates/images/val/0.txt"])
def test_two_data_sets_below_are_both_named(tmp_path, own):
    """Those that say themselves how they are read, or have splits; which one is meant, the user knows."""
    for name in ("cups", "plates"):
        pairs(tmp_path / name, 4)
    write(tmp_path / own, "")
    assert refusal(tmp_path) == (
        f"{tmp_path}: none of its images has labels. {tmp_path / 'cups'} and {tmp_path / 'plates'} look like data "
        "sets: name one of them. Where their masks mean the same, `train: {images: ., masks: .}` in "
        f"{tmp_path / 'dataset.yaml'} reads all, and `classes` there names what they hold."
    )
    write(tmp_path / "dataset.yaml", "train: {images: ., masks: .}\nclasses: [cloth, cup]\n")
    assert len((found := listing(tmp_path)).train) + len(found.val) == 8
