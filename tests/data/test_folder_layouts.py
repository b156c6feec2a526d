"""Each layout is found: which images there are, which of them have a mask, and what part they play."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
import yaml
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


@pytest.mark.parametrize(("groups", "name"), [("folder", "{}/{}.jpg"), ("'(*)_frame*'", "{}_frame{}.jpg")])
def test_groups_are_held_out_as_a_whole(tmp_path, groups, name):
    """Folders, or videos by a pattern of names; what labels more does not move them."""
    for video in "abcd":
        for frame in range(3):
            photo(tmp_path / "images" / name.format(video, frame))
            mask(tmp_path / "masks" / name.format(video, frame).replace("jpg", "png"))
    write(tmp_path / "dataset.yaml", f"groups: {groups}")
    found = listing(tmp_path, holdout=0.25)
    videos = {item.name.removeprefix("images/")[0] for item in found.val}
    assert len(videos) == 1
    assert len(found.val) == 3
    assert not videos & {item.name.removeprefix("images/")[0] for item in found.train}
    assert found.val != listing(tmp_path, holdout=0.25, seed=3).val or len(listing(tmp_path, holdout=0.5).val) == 6


def test_groups_that_leave_nothing(tmp_path):
    """A single one is refused; so is a pattern without a group, or one that could take for ever."""
    pairs(tmp_path, 4)
    write(tmp_path / "dataset.yaml", "groups: folder")
    assert "all 4 labelled images are one group ('images')" in refusal(tmp_path)
    for pattern in ("frame*", "(a)(b)", "(****)*"):
        write(tmp_path / "dataset.yaml", f"groups: '{pattern}'")
        assert "dataset.yaml: groups: write folder, or a pattern" in refusal(tmp_path)


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


def patients(root, *, yaml: str = ""):
    """`p1/images` and `p1/masks` to `p4/masks`, with three labelled images each, and one without a mask."""
    for patient in ("p1", "p2", "p3", "p4"):
        pairs(root / patient, 3)
        photo(root / patient / "images" / "later.jpg")
    if yaml:
        write(root / "dataset.yaml", yaml)
    return root


@pytest.mark.parametrize("yaml", ["", "groups: folder", "train: {images: ., masks: .}"])
def test_folders_with_images_and_masks_of_their_own(tmp_path, yaml):
    """Those of patients are read together, and that is said where nobody has asked for it; masks are no images."""
    (tmp_path / "p1").mkdir()
    Image.new("RGB", (8, 6)).save(tmp_path / "p1" / "overview.png")
    found = find(patients(tmp_path, yaml=yaml))
    assert labelled(found.train) == [f"p{patient}/images/{index}.jpg" for patient in (1, 2, 3, 4) for index in range(3)]
    assert len(found.train) == 16
    assert all(item.mask == tmp_path / item.name[:2] / "masks" / f"{item.image.stem}.png" for item in found.train[:12])
    assert not found.problems
    told = [remark for remark in listing(tmp_path).remarks if "read together" in remark]
    assert told == (
        []
        if yaml
        else [
            "Images and masks are those of p1, p2, p3 and 1 more, read together; to read one alone, name that folder."
        ]
    )


@pytest.mark.parametrize("within", [True, False], ids=["in the data folder", "elsewhere"])
def test_folders_of_patients_beside_unlabelled_images(tmp_path, within):
    """What is said of folders that are read together is about those of patients, wherever other images lie."""
    root = tmp_path / "data"
    patients(root / "train")
    unlabelled = photo((root if within else tmp_path) / "unlabelled" / "0.jpg").parent
    told = "Images and masks are those of p1, p2, p3 and 1 more, read together; to read one alone, name that folder."
    assert told in listing(root, None if within else unlabelled).remarks


def test_folders_of_patients_in_train_and_val(tmp_path):
    """Each part has its own, at any depth, in upper and lower case; a mask without an image is named."""
    patients(tmp_path / "train" / "ward")
    for patient in ("p7", "p8"):
        photo(tmp_path / "val" / patient / "Images" / "left" / "0.jpg")
        mask(tmp_path / "val" / patient / "LABELS" / "left" / "0_mask.png")
    stray = mask(tmp_path / "val" / "p8" / "LABELS" / "stray.png")
    found = find(tmp_path)
    assert len(labelled(found.train)) == 12
    assert names(found.val) == ["val/p7/Images/left/0.jpg", "val/p8/Images/left/0.jpg"]
    assert [problem.file for problem in found.problems] == [stray]


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


def leaks(root, **options) -> list[str]:
    return [message for kind, message in listing(root, **options).warnings if "both train and validate" in kind]


def test_folders_on_both_sides_of_a_hold_out_are_said(tmp_path):
    """With the line that prevents it; not where that line is, nor where folders say nothing."""
    (told,) = leaks(patients(tmp_path / "patients"))
    found = listing(tmp_path / "patients")
    both = {item.image.parent for item in found.val} & {item.image.parent for item in found.train if item.mask}
    assert told.startswith(f"{len(both)} of 4 folders (p")
    assert told.endswith("scores will be too high. To hold out whole folders, write `groups: folder` into dataset.yaml")
    assert not leaks(tmp_path / "patients", holdout=0)
    assert not leaks(patients(tmp_path / "grouped", yaml="groups: folder"))
    grouped = listing(tmp_path / "grouped")
    (held,) = {item.image.parent.relative_to(tmp_path / "grouped").as_posix() for item in grouped.val}
    assert any(remark.endswith(f"are held out to validate, those of {held}.") for remark in grouped.remarks)
    assert not leaks(pairs(tmp_path / "flat", 8))
    for name in ("a", "b"):
        for index in range(4):
            photo(tmp_path / "two" / "images" / name / f"{index}.jpg")
            mask(tmp_path / "two" / "masks" / name / f"{index}.png")
    assert len(listing(tmp_path / "two").val) == 2
    assert not leaks(tmp_path / "two")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("P{0:02}_slice{1:02}", "(*)_slice*"),
        ("site {0}.{1}", "(*).*"),
        ("0{0}TP_{1:05}", "(*)_*"),
        ("IMG_{0}{1}", None),
        ("{0}{1}", None),
        ("a{0}b{0}x_{1}_{0}y", None),
    ],
)
def test_groups_of_names_on_both_sides_of_a_hold_out_are_said(tmp_path, name, pattern):
    """Slices of a patient, whose names share a number; the line that is given keeps them together."""
    for index in range(16):
        stem = name.format(index // 4, index % 4)
        photo(tmp_path / "images" / f"{stem}.jpg", index)
        mask(tmp_path / "masks" / f"{stem}.png")
    told = leaks(tmp_path)
    assert len(told) == (pattern is not None)
    if pattern is not None:
        assert "4 groups of them (" in told[0]
        line = re.search("`(groups: [^`]+)`", told[0])[1]
        assert yaml.safe_load(line) == {"groups": pattern}
        write(tmp_path / "dataset.yaml", line)
        assert len({item.image.stem.partition(pattern[3])[0] for item in listing(tmp_path).val}) == 1
        assert not leaks(tmp_path)
