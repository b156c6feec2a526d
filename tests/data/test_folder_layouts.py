"""Each layout is found: which images there are, which of them have a mask, and what part they play."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from PIL import Image

from data.folders import SCENE, coco, labelled, listing, mask, names, pairs, photo, refusal, write
from oneway.common.terms import IGNORE
from oneway.config import Data
from oneway.data import list_files
from oneway.data.check import apply_rules
from oneway.data.check.defects import every_item
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


def test_images_that_coco_lists_without_annotation_are_unlabelled(tmp_path):
    """As background, which they are where a description says so, they would teach what nobody has looked at."""
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        photo(tmp_path / "images" / name)
    file = coco(tmp_path / "instances.json", ["a.jpg", "b.jpg", "c.jpg"])
    tree = json.loads(file.read_text())
    tree["annotations"] = [entry for entry in tree["annotations"] if entry["image_id"] != 1]
    file.write_text(json.dumps(tree))
    found = listing(tmp_path)
    assert sorted(labelled((*found.train, *found.val))) == ["images/a.jpg", "images/c.jpg"]
    (warning,) = [one for one in apply_rules(found, survey_all(found, every_item(found), int)) if "annot" in one.kind]
    assert warning.level == "warning"
    assert warning.message.startswith("on 1 of 3 listed images nothing is annotated (images/b.jpg is the first)")
    write(tmp_path / "dataset.yaml", "unannotated: background")
    found = listing(tmp_path)
    assert len(labelled((*found.train, *found.val))) == 3
    assert "background all over, as dataset.yaml says" in found.warnings[0][1]
    bare = next(item for item in (*found.train, *found.val) if "b.jpg" in item.name)
    assert not found.read_labels(bare).any()


def test_crowds_of_coco(tmp_path):
    """How CVAT exports what was painted with a brush: labels, unless a description ignores them; both is said."""
    for name in ("a.jpg", "b.jpg"):
        photo(tmp_path / "images" / name)
    file = coco(tmp_path / "instances.json", ["a.jpg", "b.jpg"])
    tree = json.loads(file.read_text())
    for entry in tree["annotations"]:
        entry["iscrowd"] = int(isinstance(entry["segmentation"], dict))
    file.write_text(json.dumps(tree))
    found = listing(tmp_path)
    assert np.array_equal(found.read_labels(found.train[0]), SCENE)
    assert any(text.startswith("2 of 4 annotations are marked as crowds (iscrowd) and are") for text in found.remarks)
    write(tmp_path / "dataset.yaml", "crowds: ignore")
    ignoring = listing(tmp_path)
    assert np.array_equal(ignoring.read_labels(found.train[0]), np.where(SCENE == 2, IGNORE, SCENE))
    assert "2 of 4 annotations are marked as crowds and ignored, as dataset.yaml says." in ignoring.remarks
    assert ignoring.label_coding != found.label_coding


def voc(root, val: str = "b\nd\n") -> None:
    """Five images with masks and one without, of which lists name four."""
    for name in "abcdef":
        photo(root / "JPEGImages" / f"{name}.jpg")
        if name != "f":
            mask(root / "SegmentationClass" / f"{name}.png")
            mask(root / "SegmentationObject" / f"{name}.png")
    write(root / "ImageSets" / "Segmentation" / "train.txt", "a\nc\n")
    write(root / "ImageSets" / "Segmentation" / "val.txt", val)
    write(root / "ImageSets" / "Segmentation" / "trainval.txt", "a\nb\nc\nd\n")
    write(root / "ImageSets" / "Main" / "train.txt", "e 1\n")


def test_lists_of_pascal_voc_are_the_splits(tmp_path):
    """Nothing is held out at random; what no list names trains without labels."""
    voc(tmp_path)
    found = listing(tmp_path)
    assert labelled(found.train) == ["JPEGImages/a.jpg", "JPEGImages/c.jpg"]
    assert names(found.train)[2:] == ["JPEGImages/e.jpg", "JPEGImages/f.jpg"]
    assert names(found.val) == ["JPEGImages/b.jpg", "JPEGImages/d.jpg"]
    assert not any("held out" in remark for remark in found.remarks)
    assert not find(tmp_path).problems
    saved = find(tmp_path).description.to_yaml()
    assert "list: ImageSets/Segmentation/val.txt" in saved
    write(tmp_path / "dataset.yaml", saved)
    assert (listing(tmp_path).train, listing(tmp_path).val) == (found.train, found.val)


def test_an_entry_of_a_list_that_is_no_image_is_named(tmp_path):
    """With the list; so is one without a mask."""
    voc(tmp_path, "b\nf\ngone\n")
    found = find(tmp_path)
    assert names(found.val) == ["JPEGImages/b.jpg"]
    told = [problem.message for problem in found.problems]
    assert "lists 'gone', and there is no such image." in told
    assert "lists 1 images without labels, JPEGImages/f.jpg among them." in told


def test_lists_in_a_description(tmp_path):
    """Of any images, by path, name or stem, perhaps with the mask behind."""
    pairs(tmp_path, 4)
    write(tmp_path / "lists" / "train.txt", "images/0.jpg masks/0.png\nimages/2.jpg masks/2.png\n")
    write(tmp_path / "lists" / "val.txt", "# to validate\n3\n")
    write(
        tmp_path / "dataset.yaml",
        "train: {images: images, masks: masks, list: lists/train.txt}\n"
        "val: {images: images, masks: masks, list: lists/val.txt}\n",
    )
    found = listing(tmp_path)
    assert (labelled(found.train), names(found.val)) == (["images/0.jpg", "images/2.jpg"], ["images/3.jpg"])
    assert names(found.train)[2:] == ["images/1.jpg"]


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


def test_images_with_a_fourth_band_are_said(tmp_path):
    """Once for all of them."""
    pairs(tmp_path, 4)
    for index in range(2):
        Image.new("RGBA", SCENE.shape[::-1], (index, 0, 0, 9)).save(tmp_path / "images" / f"{index}.jpg", "PNG")
    found = listing(tmp_path)
    told = [one for one in apply_rules(found, survey_all(found, every_item(found), int)) if "Bands" in one.kind]
    assert len(told) == 1
    assert told[0].message.startswith("2 of 4 images have a band besides their colours")


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


def test_masks_of_roboflow(tmp_path):
    """Beside the images, with a table of numbers and names in each part."""
    for part in ("train", "valid"):
        for name in ("a_jpg.rf.0123", "b_jpg.rf.4567"):
            photo(tmp_path / part / f"{name}.jpg")
            mask(tmp_path / part / f"{name}_mask.png")
        write(tmp_path / part / "_classes.csv", "Pixel Value, Class\n0, background\n1, road\n2, car\n3, bus\n")
    found = listing(tmp_path)
    assert found.classes == ("background", "road", "car", "bus")
    assert len(labelled(found.train)) == len(found.val) == 2
    assert np.array_equal(found.read_labels(found.val[0]), SCENE)


def test_tables_with_the_colour_first(tmp_path):
    """As CamVid's label_colors.txt."""
    pairs(tmp_path, 4, kind="RGB")
    write(tmp_path / "label_colors.txt", "0 0 0\t\tVoid\n128 64 128\tRoad\n0 0 142 Car\n")
    found = listing(tmp_path)
    assert found.classes == ("Void", "Road", "Car")
    assert np.array_equal(found.read_labels(found.val[0]), SCENE)


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


def test_ade20k(tmp_path):
    """Its folders, its table of names, of which several may be one class, and 0 for what has none."""
    for part in ("training", "validation"):
        for name in ("a", "b"):
            photo(tmp_path / "images" / part / f"{name}.jpg")
            mask(tmp_path / "annotations" / part / f"{name}.png")
    rows = "1\t0.1\t10\t1\twall\n2\t0.1\t10\t1\tbuilding, edifice\n3\t0.1\t10\t1\tsky\n"
    write(tmp_path / "objectInfo150.txt", f"Idx\tRatio\tTrain\tVal\tName\n{rows}")
    found = listing(tmp_path)
    assert found.classes == ("wall", "building", "sky")
    assert (len(labelled(found.train)), len(found.val)) == (2, 2)
    assert np.array_equal(found.read_labels(found.val[0]), np.array([IGNORE, 0, 1], np.uint8)[SCENE])
