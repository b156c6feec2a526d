"""Labels and images of kinds that are not read: what was seen is named, and the way out."""

from __future__ import annotations

import json

import numpy as np
import pytest

from data.folders import labelled, listing, mask, pairs, photo, refusal, write
from oneway.data.folder import find

LABELME = json.dumps({"version": "5.0", "flags": {}, "shapes": [{"label": "book", "points": [[0, 0], [3, 0], [0, 3]]}]})
FILES = {
    "YOLO files with the names of images are not read (6; labels/0.txt": (
        "labels/{}.txt",
        "1 0.2 0.38 0.47 0.38 0.2 0.75\n",
    ),
    "Pascal VOC files with the names of images are not read (6; 0.xml": (
        "{}.xml",
        "<annotation><filename>0.jpg</filename></annotation>",
    ),
}


@pytest.mark.parametrize(("words", "file"), FILES.items(), ids=["YOLO", "Pascal VOC"])
def test_labels_of_other_tools_are_named(tmp_path, words, file):
    """They lie beside the images or in a folder of their own, and no mask does."""
    place, content = file
    for index in range(8):
        photo(tmp_path / f"{index}.jpg")
    for index in range(6):
        write(tmp_path / place.format(index), content)
    message = refusal(tmp_path)
    assert words in message
    assert ("Name the classes in a data.yaml" if "YOLO" in words else "PNG masks, or as COCO") in message


def test_masks_of_a_kind_that_is_not_read_are_counted(tmp_path):
    """Where none of another kind is beside the images; a caption is no such thing."""
    for index in range(3):
        photo(tmp_path / "images" / f"{index}.jpg")
        write(tmp_path / "masks" / f"{index}.npy", "numbers")
    write(tmp_path / "masks" / "readme.txt", "masks")
    assert "masks holds 3 files of kind .npy, not read: save masks as PNG." in refusal(tmp_path)


def test_brush_strokes_exported_one_by_one_are_told_the_format_to_export(tmp_path):
    """Their names have numbers of tasks alone."""
    for index in range(3):
        photo(tmp_path / "images" / f"{index}.jpg")
        mask(tmp_path / "png" / f"task-{index}-annotation-7-by-1-tag-crack-0.png")
    said = "3 masks of Label Studio (png/task-0-annotation-7-by-1-tag-crack-0.png is the first) are not read"
    assert said in refusal(tmp_path)
    assert "export as JSON" in refusal(tmp_path)


def test_videos_are_named_with_the_flag_that_reads_them(tmp_path):
    """Beside the folders of a set, and among its images."""
    pairs(tmp_path, 4)
    beside, among = tmp_path / "b.mp4", tmp_path / "images" / "a b.webm"
    for video in (beside, among):
        write(video, "film")
    found = listing(tmp_path)
    said = f"`--data.unlabelled {beside}` trains on its frames, without labels."
    assert f"b.mp4 is not read; {said}" in found.remarks
    (problem,) = find(tmp_path).problems
    assert problem.message == f"left out: a video. `--data.unlabelled '{among}'` trains on its frames, without labels."
    write(tmp_path / "drives" / "monday" / "c.MOV", "film")
    said = "b.mp4 and drives/monday/c.MOV are not read; `--data.unlabelled {}` trains on the frames of the first"
    assert any(remark.startswith(said.format(beside)) for remark in listing(tmp_path).remarks)
    beside.unlink()
    write(tmp_path / "drives" / "d.mov", "film")
    said = (
        f"drives/d.mov and drives/monday/c.MOV are not read; `--data.unlabelled {tmp_path / 'drives'}` trains on their"
    )
    assert any(remark.startswith(said) for remark in listing(tmp_path).remarks)
    photo(tmp_path / "more" / "x.jpg")
    assert not any("b.mp4" in remark for remark in listing(tmp_path, tmp_path / "more").remarks)


def test_other_notes_about_images_are_no_labels(tmp_path):
    """A caption in a text, or a camera's settings in JSON; and labels of images that have a mask."""
    pairs(tmp_path, 4)
    photo(tmp_path / "images" / "free.jpg")
    write(tmp_path / "images" / "free.txt", "A photograph of 1 car.")
    write(tmp_path / "images" / "free.json", '{"exposure": 0.01}')
    write(tmp_path / "images" / "0.json", LABELME)
    assert not any("not read" in remark for remark in listing(tmp_path).remarks)
    write(tmp_path / "images" / "free.json", LABELME)
    assert any("(1; images/free.json is the first)" in remark for remark in listing(tmp_path).remarks)


@pytest.mark.parametrize("marker", ["_mask", "_masks", "_label", "_labels", "_seg", "_gt", "_Mask", "_GT"])
def test_masks_are_known_by_what_their_name_ends_with(tmp_path, marker):
    """Beside their images, and in a folder of their own."""
    photo(tmp_path / "beside" / "a.png")
    mask(tmp_path / "beside" / f"a{marker}.png")
    photo(tmp_path / "apart" / "images" / "a.png")
    mask(tmp_path / "apart" / "masks" / f"a{marker}.png")
    assert labelled(find(tmp_path / "beside").train) == ["a.png"]
    assert labelled(find(tmp_path / "apart").train) == ["images/a.png"]


def test_a_mask_with_an_unknown_ending_is_told_its_name(tmp_path):
    """That of the longest image name it begins with; in vain where another word or subfolder goes on."""
    for name in ("exp", "exp_0", "exp_000", "deep/exp_001"):
        photo(tmp_path / "images" / f"{name}.jpg")
    for name in ("exp_000_Maske", "deep/exp_001-1", "expanse", "exp_other/a"):
        mask(tmp_path / "masks" / f"{name}.png")
    told = {problem.file.stem: problem.message for problem in find(tmp_path).problems}
    assert "the image exp_000.jpg: rename it to exp_000.png." in told["exp_000_Maske"]
    assert "the image exp_001.jpg: rename it to exp_001.png." in told["exp_001-1"]
    assert all("Add the image, or remove the mask." in told[stem] for stem in ("expanse", "a"))


def test_masks_beside_images_with_an_unknown_ending_are_told_one(tmp_path):
    """Of photographs alone, one called like another is no mask; and a number behind a name is none of these endings."""
    for index in (1, 12, 3):
        photo(tmp_path / f"part {index}.jpg", index)
        photo(tmp_path / f"part {index} detail.jpg", index + 100)
    assert "let them end with" not in refusal(tmp_path)
    for index in (1, 12, 3):
        mask(tmp_path / f"part {index}_Maske.png")
    said = refusal(tmp_path)
    assert "3 files end with '_Maske' behind the name of an image (part 12_Maske.png is the first)" in said
    for file in tmp_path.glob("*_Maske.png"):
        file.rename(file.with_name(file.name.replace("_Maske", "_mask")))
    assert len(labelled(find(tmp_path).train)) == 3


@pytest.mark.parametrize("names", [("a_roof", "a_lawn"), ("a", "a_lawn")])
def test_several_masks_of_one_image_are_not_given_the_same_name(tmp_path, names):
    """They show a class each, or one of them has the name already."""
    photo(tmp_path / "images" / "a.jpg")
    for name in names:
        mask(tmp_path / "masks" / f"{name}.png")
    message = find(tmp_path).problems[-1].message
    assert "paint all masks of this image into one, a.png." in message
    assert "rename" not in message


def test_a_folder_of_masks_for_each_class_is_one_finding(tmp_path):
    """And no mask in it is said to lack its image."""
    for index in range(5):
        photo(tmp_path / "images" / f"{index}.jpg")
        for name in ("book", "plant"):
            mask(tmp_path / "masks" / name / f"{index}.png", np.zeros((6, 8)))
    problems = find(tmp_path).problems
    assert [problem.file.name for problem in problems] == ["book", "plant"]
    assert "5 masks here" in problems[0].message
    assert "one class each" in refusal(tmp_path)


def test_a_folder_of_images_that_are_not_read(tmp_path):
    """Their kinds are counted, with the way out."""
    for name in ("a.heic", "b.HEIC", "c.jxl"):
        write(tmp_path / name, "")
    assert "no image found, but files that are not read: 2 of kind .heic and 1 of kind .jxl" in refusal(tmp_path)
    assert "Convert them to JPEG or PNG" in refusal(tmp_path)
    write(tmp_path / "scans" / "a.nii.gz", "")
    assert "1 of kind .nii.gz" in refusal(tmp_path / "scans")


def test_a_folder_of_videos_alone(tmp_path):
    """As a data set, and as further images: the flag that reads one of them."""
    videos = write(tmp_path / "films" / "a.mp4", "film").parent
    write(videos / "b.mov", "film")
    flag = f"`--data.unlabelled {videos}` trains on their frames"
    said = f"no image found, but videos: 1 of kind .mov and 1 of kind .mp4. {flag}"
    assert said in refusal(videos)
    assert said in refusal(pairs(tmp_path / "set"), videos)


def test_an_archive_in_a_folder_is_named_itself_or_unpacked(tmp_path):
    """As the only thing there, it may be the data set; among images, it may hold their labels."""
    archive = write(tmp_path / "data" / "export.zip", "")
    said = (
        f"no image found, but archives: 1 of kind .zip. Name the archive instead of the folder ({archive}), or unpack"
    )
    assert said in refusal(tmp_path / "data")
    photo(tmp_path / "data" / "0.jpg")
    (problem,) = find(tmp_path / "data").problems
    assert problem.message.startswith(f"left out: an archive. Unpack it if it is to be used: unzip {archive} -d ")
