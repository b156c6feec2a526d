"""What annotation tools and public data sets export is read as they mean it: annotations, lists, tables."""

from __future__ import annotations

import json

import numpy as np
import pytest

from data.folders import SCENE, coco, labelled, listing, mask, names, pairs, photo, refusal, write
from oneway.common.terms import IGNORE
from oneway.data.check import apply_rules
from oneway.data.check.survey import survey_all
from oneway.data.folder import find
from oneway.data.folder.yaml_text import to_yaml


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
    (warning,) = [one for one in apply_rules(found, survey_all(found, found.items, int)) if "annot" in one.kind]
    assert warning.level == "warning"
    assert warning.message.startswith("on 1 of 3 listed images nothing is annotated (images/b.jpg is the first)")
    write(tmp_path / "dataset.yaml", "unannotated: background")
    found = listing(tmp_path)
    assert len(labelled((*found.train, *found.val))) == 3
    assert "background all over, as dataset.yaml says" in found.warnings[0][1]
    bare = next(item for item in (*found.train, *found.val) if "b.jpg" in item.name)
    assert not found.read_labels(bare).any()


@pytest.mark.parametrize("part", ["train", "val"])
def test_validation_images_without_annotations_are_said_not_to_count(tmp_path, part):
    """Empty files of YOLO, as it has them of background: a score on the others alone flatters a model."""
    for split in ("train", "val"):
        for name in "ab":
            photo(tmp_path / "images" / split / f"{split}{name}.jpg")
            write(tmp_path / "labels" / split / f"{split}{name}.txt", "0 0.1 0.1 0.9 0.1 0.9 0.9\n")
    write(tmp_path / "data.yaml", "train: images/train\nval: images/val\nnames: [road]\n")
    write(tmp_path / "labels" / part / f"{part}b.txt", "")
    (message,) = [text for kind, text in listing(tmp_path).warnings if kind == "Images without annotations"]
    assert ("1 of them cannot validate, so that false alarms there do not count" in message) == (part == "val")
    write(tmp_path / "dataset.yaml", "unannotated: background\n")
    assert len(listing(tmp_path).val) == 2


def test_an_empty_file_of_annotations_is_no_missing_mask(tmp_path):
    """It is spoken of once; an image without a file among many that have one may have been forgotten."""
    for index in range(40):
        photo(tmp_path / "images" / f"{index:02}.jpg", index)
        write(tmp_path / "labels" / f"{index:02}.txt", "0 0.1 0.1 0.9 0.1 0.9 0.9\n" if index else "")
    write(tmp_path / "data.yaml", "train: images\nnames: [road]\n")

    def kinds():
        found = listing(tmp_path)
        return {
            one.kind
            for one in apply_rules(found, survey_all(found, found.items, int))
            if "nnot" in one.kind or "missing" in one.kind
        }

    assert kinds() == {"Images without annotations"}
    (tmp_path / "labels" / "00.txt").unlink()
    assert kinds() == {"Masks that may be missing: these images train unlabelled"}


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
    saved = to_yaml(find(tmp_path).description)
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


def test_a_table_of_parts_is_no_list(tmp_path):
    """Read as one, it would train on what is to validate; a column that is the same on all lines does no harm."""
    pairs(tmp_path, 4)
    write(tmp_path / "dataset.yaml", "train: {images: images, masks: masks, list: split.csv}")
    write(tmp_path / "split.csv", "file,split,cells\n0.jpg,train,7\n1.jpg,train,9\n2.jpg,val,3\n")
    assert f"{tmp_path / 'split.csv'}: a table of images for train and val, which would all be" in refusal(tmp_path)
    write(tmp_path / "split.csv", "0.jpg,train,7\n1.jpg,train,9\n")
    assert len(labelled(find(tmp_path).train)) == 2


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


def test_ade20k(tmp_path):
    """Its folders, its table of names, and 0 for what has none."""
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
