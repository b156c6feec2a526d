"""Folders and files of unusual names: what has the names of masks is found, and what is not used is said."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from data.folders import SCENE, coco, labelled, listing, mask, names, pairs, photo, refusal, write
from oneway.data.folder import describe, find
from oneway.data.folder.yaml_text import to_yaml
from oneway.tools.predict.sources import find_sources


def with_masks(root, images="photos", count=4, masks="masks"):
    for index in range(count):
        photo(root / images / f"IMG_{index:04}.JPG", index)
        mask(root / masks / f"IMG_{index:04}.png")
    return root


def masks_of(found):
    return {item.name: item.mask.name for item in found.train if item.mask}


@pytest.mark.parametrize("name", ["photos", "Pictures", "photographs", "imgs", "holiday 2024"])
def test_photos_beside_masks(tmp_path, name):
    """Whatever their folder is called; one that is not usual is named."""
    found = listing(with_masks(tmp_path, name), holdout=0)
    assert labelled(found.train) == [f"{name}/IMG_{index:04}.JPG" for index in range(4)]
    guessed = [remark for remark in found.remarks if "they have the names of the masks" in remark]
    assert len(guessed) == (name == "holiday 2024")


def test_loose_files_do_not_hide_a_folder(tmp_path):
    """However many come before it by name: of the folders there, the first few are looked at."""
    for number in range(40):
        write(tmp_path / f"{number:02}.pdf", "a paper")
    assert len(labelled(find(with_masks(tmp_path, "holiday")).train)) == 4


def test_photos_in_splits(tmp_path):
    """Inside and outside, the validation set stays one."""
    for part, count in (("train", 4), ("val", 2)):
        with_masks(tmp_path / "outside" / part, count=count)
        with_masks(tmp_path / "inside", f"photos/{part}", count, f"masks/{part}")
    for place in ("outside", "inside"):
        found = find(tmp_path / place)
        assert [len(labelled(items)) for items in (found.train, found.val)] == [4, 2]


def test_the_partner_is_unique(tmp_path):
    """Of two folders with these names neither is taken, unless one of them has a usual name; nor masks."""
    for index in range(2):
        mask(tmp_path / "masks only" / "masks" / f"{index}.png")
        mask(tmp_path / "masks only" / "masks_coloured" / f"{index}.png", kind="RGB")
    assert not labelled(find(tmp_path / "masks only").train)
    root = with_masks(with_masks(tmp_path / "set", "morning"), "evening")
    assert not labelled(find(root).train)
    with_masks(root, "pictures")
    assert labelled(find(root).train)[0] == "pictures/IMG_0000.JPG"


def test_a_few_names_in_common_are_no_sign(tmp_path):
    """One of four."""
    with_masks(tmp_path, "other", 1)
    for index in range(1, 4):
        mask(tmp_path / "masks" / f"IMG_{index:04}.png")
    assert not labelled(find(tmp_path).train)


def test_what_was_understood_before_is_read_as_before(tmp_path):
    """Pairs below several folders, masks in a folder of the same name, and patients, each with a folder of photos."""
    for place in ("photos", "scans"):
        photo(tmp_path / "beside" / place / "a.jpg")
        mask(tmp_path / "beside" / place / "a.png")
    assert labelled(find(tmp_path / "beside").train) == ["photos/a.jpg", "scans/a.jpg"]
    photo(tmp_path / "inside" / "photos" / "a.jpg")
    mask(tmp_path / "inside" / "masks" / "photos" / "a.png")
    assert find(tmp_path / "inside").description.train.images == "."
    for patient in ("p1", "p2"):
        photo(tmp_path / "patients" / "photos" / patient / "images" / "a.jpg")
        mask(tmp_path / "patients" / "photos" / patient / "masks" / "a.png")
    assert len(labelled(find(tmp_path / "patients").train)) == 2


@pytest.mark.parametrize("word", ["mask", "label", "gt", "GT"])
@pytest.mark.parametrize("image", ["", "image_"])
def test_words_before_the_name_of_a_mask(tmp_path, word, image):
    """Beside images, and in a folder of their own, with subfolders."""
    for index in range(3):
        photo(tmp_path / "beside" / f"{image}{index:04}.png")
        mask(tmp_path / "beside" / f"{word}_{index:04}.png")
        photo(tmp_path / "apart" / "images" / "day" / f"{image}{index:04}.jpg")
        mask(tmp_path / "apart" / "masks" / "day" / f"{word}_{index:04}.png")
    for place, folder, suffix in (("beside", "", "png"), ("apart", "images/day/", "jpg")):
        found = find(tmp_path / place)
        expected = {f"{folder}{image}{index:04}.{suffix}": f"{word}_{index:04}.png" for index in range(3)}
        assert masks_of(found) == expected
        assert len(found.train) == 3
        assert not found.problems


def test_words_before_names_mean_nothing_where_others_pair(tmp_path):
    """As before: beside X.jpg and X.png, mask_X.png is an image; a JPEG file may be a photograph of a mask."""
    photo(tmp_path / "x.jpg")
    photo(tmp_path / "y.jpg")
    mask(tmp_path / "x.png")
    mask(tmp_path / "mask_x.png")
    mask(tmp_path / "mask_y.png")
    found = find(tmp_path)
    assert masks_of(found) == {"x.jpg": "x.png"}
    assert names(found.train) == ["x.jpg", "mask_x.png", "mask_y.png", "y.jpg"]
    photo(tmp_path / "faces" / "1.jpg")
    photo(tmp_path / "faces" / "mask_1.jpg")
    assert not labelled(find(tmp_path / "faces").train)


def unused(root):
    return [remark for remark in listing(root).remarks if "not used" in remark]


def test_images_that_are_not_used_are_counted(tmp_path):
    """Their folders too; the line that is given adds them, beside those that are there."""
    pairs(tmp_path)
    for index in range(5):
        photo(tmp_path / "more_photos" / f"{index}.jpg")
        photo(tmp_path / "test" / "images" / f"{index}.jpg")
    (remark,) = unused(tmp_path)
    line = "unlabelled: [more_photos, test/images]"
    assert remark == f"10 images in more_photos and test/images are not used; `{line}` in dataset.yaml adds them."
    write(tmp_path / "dataset.yaml", line)
    assert not unused(tmp_path)
    assert len(listing(tmp_path).train) == 3 + 10
    photo(tmp_path / "video" / "1.jpg")
    assert "`unlabelled: [more_photos, test/images, video]`" in unused(tmp_path)[0]


def test_what_is_used_or_holds_labels_is_not_named(tmp_path):
    """A labelled test set, masks in colours, depth of the same images, and folders inside the one that is read."""
    pairs(tmp_path / "a")
    pairs(tmp_path / "a" / "test")
    for index in range(4):
        mask(tmp_path / "a" / "painted" / f"{index}.png", kind="RGB")
    photo(tmp_path / "a" / "images" / "deep" / "u.jpg")
    photo(tmp_path / "a" / "unlabelled" / "u.jpg")
    assert not unused(tmp_path / "a")
    for part in ("", "val", "further"):
        photo(tmp_path / "b" / part / "x.jpg")
        photo(tmp_path / "b" / part / "y.jpg")
        mask(tmp_path / "b" / part / "x.png")
        mask(tmp_path / "b" / part / "y.png")
    photo(tmp_path / "b" / "others" / "z.jpg")
    assert "others/z.jpg" in names(listing(tmp_path / "b").train)
    assert not unused(tmp_path / "b")


def test_labelled_images_in_another_folder_are_counted(tmp_path):
    """At any depth; the line that is given reads them too. Beside a validation or a test set, it would mix those in."""
    pairs(tmp_path, 4)
    pairs(tmp_path / "batch2", 3)
    photo(tmp_path / "batch2" / "images" / "u.jpg")
    pairs(tmp_path / "more" / "batch3", 1)
    (remark,) = unused(tmp_path)
    line = "train: {images: ., masks: .}"
    said = "4 images with their masks in batch2 and more are not used"
    assert remark == f"{said}; `{line}` in dataset.yaml reads `images` and `masks` in every folder."
    pairs(tmp_path / "test", 2)
    assert unused(tmp_path) == [f"{said}; to train on them, put them into images and masks."]
    shutil.rmtree(tmp_path / "test")
    write(tmp_path / "dataset.yaml", line)
    found = listing(tmp_path)
    assert len(labelled(found.train)) + len(found.val) == 4 + 3 + 1
    assert "batch2/images/u.jpg" in names(found.train)
    assert not unused(tmp_path)


@pytest.mark.parametrize("parts", [("{}/images", "{}/masks"), ("images/{}", "masks/{}"), ("{}", "{}annot")])
def test_labelled_test_images_are_a_split_of_their_own(tmp_path, parts):
    """They neither train nor validate, are not unused, and `predict --unlabelled` leaves them out."""
    for part in ("train", "val", "test"):
        for index in range(3):
            photo(tmp_path / parts[0].format(part) / f"{part}{index}.jpg")
            mask(tmp_path / parts[1].format(part) / f"{part}{index}.png")
    photo(tmp_path / parts[0].format("train") / "bare.jpg")
    found = listing(tmp_path)
    assert [file.image.stem for file in found.test] == ["test0", "test1", "test2"]
    assert [file.image.stem for file in found.val] == ["val0", "val1", "val2"]
    assert [file.image.stem for file in found.train] == ["train0", "train1", "train2", "bare"]
    assert np.array_equal(found.read_labels(found.test[0]), SCENE)
    (remark,) = [remark for remark in found.remarks if "test" in remark]
    assert remark == "3 test images neither train nor validate; `oneway eval RUN --split test` scores a model by them."
    sources = find_sources([str(tmp_path)], tmp_path / "out", unlabelled=True)
    assert [source.path.name for source in sources] == ["bare.jpg"]
    again = find(tmp_path, tmp_path / parts[0].format("test"))
    assert again.train == find(tmp_path).train
    assert [problem.message for problem in again.problems] == [
        "adds no image: those in it train, validate or test a model already."
    ]
    write(tmp_path / "dataset.yaml", to_yaml(describe(tmp_path).description))
    assert listing(tmp_path).splits == found.splits
    write(tmp_path / "dataset.yaml", f"unlabelled: [{parts[0].format('test')}]\n")
    assert {name: len(items) for name, items in listing(tmp_path).splits.items()} == {"train": 7, "val": 3, "test": 0}


@pytest.mark.parametrize("with_test", [True, False])
def test_annotated_test_images_are_a_split_of_their_own(tmp_path, with_test):
    """As Roboflow exports COCO and YOLO, whether or not its file names the split; without labels they are no split."""
    for part in ("train", "valid", "test"):
        photos = [photo(tmp_path / "coco" / part / f"{part}{index}.jpg") for index in range(3)]
        coco(tmp_path / "coco" / part / "_annotations.coco.json", [file.name for file in photos])
        photo(tmp_path / "yolo" / part / "images" / f"{part}.jpg")
        write(tmp_path / "yolo" / part / "labels" / f"{part}.txt", "0 0.1 0.1 0.9 0.1 0.9 0.9\n")
    named = "test: ../test/images\n" if with_test else ""
    write(tmp_path / "yolo" / "data.yaml", f"train: ../train/images\nval: ../valid/images\n{named}names: [road]\n")
    for kind, count in (("coco", 3), ("yolo", 1)):
        found = listing(tmp_path / kind)
        assert [len(items) for items in found.splits.values()] == [count] * 3
        assert 1 in found.read_labels(found.test[0])
    for file in (tmp_path / "yolo/test/labels").iterdir():
        file.unlink()
    found = listing(tmp_path / "yolo")
    assert not found.test
    assert any("1 image in test/images is not used; `unlabelled: [test/images]`" in line for line in found.remarks)


def test_the_description_has_the_last_word(tmp_path):
    """Where it is what fails, it is named, with what it says; images alone lack masks."""
    root = with_masks(tmp_path / "set")
    file = write(root / "dataset.yaml", "train: {images: ., masks: masks}")
    assert f"{file} has the last word, and its `train` says `images: .`, `masks: masks`" in refusal(root)
    photo(tmp_path / "bare" / "a.jpg")
    assert f"{tmp_path / 'bare'}: masks are missing: 0 of 1 training image has labels. Put" in refusal(
        tmp_path / "bare"
    )
    for index in range(3):
        photo(tmp_path / "classes" / f"kind{index % 2}" / f"{index}.jpg")
        photo(tmp_path / "pair" / "scans" / f"{index}.jpg")
        mask(tmp_path / "pair" / "drawn" / f"{index}.png")
    assert "If kind0 and kind1 are classes of whole images: those are not learnt here" in refusal(tmp_path / "classes")
    said = refusal(tmp_path / "pair")
    assert "have labels. Files in drawn have the names of those in scans: if they are masks, write" in said
    assert "classes of whole images" not in said


def test_masks_beside_annotated_images_are_no_photographs(tmp_path):
    """They are not trained on, and the line that reads them is given."""
    for index in range(6):
        photo(tmp_path / "DCIM" / f"{index}.JPG")
    for index in range(3):
        mask(tmp_path / "export" / f"{index}.png", kind="RGB")
    coco(tmp_path / "polygons.json", ["4.JPG", "5.JPG"])
    found = listing(tmp_path)
    assert {name.split("/")[0] for name in names([*found.train, *found.val])} == {"DCIM"}
    line = "train: {images: DCIM, masks: export}"
    assert [f"`{line}`" in remark for remark in found.remarks if "export" in remark] == [True]
    write(tmp_path / "dataset.yaml", line)
    assert len(labelled(find(tmp_path).train)) == 3


def test_annotations_beside_masks_are_named(tmp_path):
    """With the line that reads them; other files of JSON are not."""
    pairs(tmp_path)
    write(tmp_path / "settings.json", '{"colour": [1, 2]}')
    assert not any(".json" in remark for remark in listing(tmp_path).remarks)
    coco(tmp_path / "polygons.json", ["0.jpg", "1.jpg"])
    (remark,) = (remark for remark in listing(tmp_path).remarks if ".json" in remark)
    line = "train: {images: images, coco: polygons.json}"
    assert f"the annotations in polygons.json are not read. To read these instead, write `{line}`" in remark
    write(tmp_path / "dataset.yaml", line)
    assert len(labelled(find(tmp_path).train)) == 2


def test_two_folders_whose_names_say_nothing(tmp_path):
    """Where the files of one have the names of those of another, the line that reads them is given."""
    for index in range(3):
        photo(tmp_path / "raw" / f"well A0{index}.tif")
        mask(tmp_path / "annotations_done" / f"well A0{index}_mask.tif")
    photo(tmp_path / "raw" / "well A09.tif")
    line = "train: {images: raw, masks: annotations_done}"
    assert f"`{line}`" in refusal(tmp_path)
    write(tmp_path / "dataset.yaml", line)
    assert len(listing(tmp_path).train) == 3


@pytest.mark.parametrize("place", ["masks", "."], ids=["apart", "side by side"])
def test_masks_with_the_suffix_of_their_image(tmp_path, place):
    """As some annotation tools name what they export."""
    folder = "images" if place == "masks" else "."
    for index in range(3):
        photo(tmp_path / folder / f"{index}.jpg", index)
        mask(tmp_path / place / f"{index}.jpg.png")
    found = find(tmp_path)
    assert masks_of(found) == {item.name: f"{item.image.name}.png" for item in found.train}
    assert len(found.train) == 3
    assert not found.problems


def test_masks_in_one_folder_of_images_in_many(tmp_path):
    """As cameras number photographs of several days on and on; where a name occurs twice, nothing is guessed."""
    for index in range(4):
        photo(tmp_path / "images" / f"day{index % 2}" / f"DSC_{index}.jpg", index)
        mask(tmp_path / "masks" / f"DSC_{index}.png")
    photo(tmp_path / "images/day1/DSC_9.jpg", 9)
    found = find(tmp_path)
    assert masks_of(found) == {f"images/day{index % 2}/DSC_{index}.jpg": f"DSC_{index}.png" for index in range(4)}
    assert len(found.train) == 5
    assert not found.problems
    photo(tmp_path / "images/day0/DSC_9.jpg", 10)
    assert not masks_of(find(tmp_path))
