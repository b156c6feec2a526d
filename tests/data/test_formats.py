"""Annotations as the tools' own libraries write them, read as those libraries do; what is wrong in them is named.

`exports.json` has files that labelme, supervision, pycocotools, datumaro and label-studio-converter made of one scene,
and the label maps that these libraries, or pycocotools, make of their outlines.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.folders import labelled, listing, mask, names, photo, refusal, write
from oneway.common.errors import UserError
from oneway.common.words import counted
from oneway.data.cache.stamps import files_of
from oneway.data.folder import find
from oneway.data.folder.yaml_text import to_yaml

EXPORTS = json.loads((Path(__file__).parent / "exports.json").read_text())
SIZE = (24, 32)
BORDER = 60  # pixels, of outlines that are about 100 long: tools disagree on those that a border goes through


def put(root: Path, files: dict[str, str], count: int = 2, images: str = "images") -> Path:
    """The files of an export, with as many images."""
    for name in "abcdef"[:count]:
        photo(root / images / f"{name}.jpg", size=SIZE)
    for name, text in files.items():
        write(root / name, text)
    return root


def export(root: Path, kind: str) -> Path:
    """An export of one of the libraries, of two images, so that one can validate."""
    files = EXPORTS[kind]["files"]
    twice = {}
    for name, text in files.items():
        if kind == "labelme" or name.startswith("labels/"):
            twice[name.replace("a.", "b.")] = text.replace("a.jpg", "b.jpg")
        elif kind == "label_studio":
            other = json.loads(text.replace("-a.jpg", "-b.jpg"))
            files = {name: json.dumps(json.loads(text) + other)}
        elif kind == "cvat":
            start = text.index("<image id")
            end = text.index("</annotations>")
            files = {name: text[:end] + text[start:end].replace("a.jpg", "b.jpg") + text[end:]}
        elif kind == "coco":
            tree = json.loads(text)
            tree["images"].append(tree["images"][0] | {"id": 2, "file_name": "b.jpg"})
            tree["annotations"] += [one | {"id": one["id"] + 9, "image_id": 2} for one in tree["annotations"]]
            files = {name: json.dumps(tree)}
    place = "images" if kind == "labelme" else "."
    return put(root, {f"{place}/{name}": text for name, text in (files | twice).items()}, count=3)


def label_map(found, name: str = "a.jpg") -> np.ndarray:
    return found.read_labels(next(item for item in (*found.train, *found.val) if item.name.endswith(name)))


@pytest.mark.parametrize("kind", EXPORTS)
def test_exports_are_read_as_their_own_libraries_read_them(tmp_path, kind):
    """Without a description; outlines but for pixels on their borders, masks to the pixel."""
    found = listing(export(tmp_path, kind))
    assert {*found.classes} == {"background", "road", "car"}
    assert sorted(labelled((*found.train, *found.val))) == ["images/a.jpg", "images/b.jpg"]
    assert names(found.train)[-1] == "images/c.jpg"
    expected = np.array([[int(digit) for digit in row] for row in EXPORTS[kind]["expected"]])
    known = {0: 0, 1: found.classes.index("road"), 2: found.classes.index("car")}
    expected = np.vectorize(known.get)(expected)
    labels = label_map(found)
    assert np.array_equal(labels, label_map(found, "b.jpg"))
    different = labels != expected
    assert different.sum() <= BORDER
    inner = np.ones_like(different)  # pixels whose neighbours are all of their class
    for rows, columns in ((0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (-1, -1), (1, -1), (-1, 1)):
        inner &= np.roll(expected, (rows, columns), (0, 1)) == expected
    assert not different[inner].any()
    if kind in ("coco", "cvat", "label_studio"):  # what was painted with a brush
        assert not different[expected == known[2]].any()
    assert pickle.loads(pickle.dumps(found.read_labels))(found.train[0]).shape == SIZE


@pytest.mark.parametrize("kind", EXPORTS)
def test_what_is_saved_as_a_description_is_read_the_same(tmp_path, kind):
    """The format has a key there."""
    root = export(tmp_path, kind)
    before = listing(root)
    saved = write(root / "dataset.yaml", to_yaml(find(root).description)).read_text()
    assert f"{kind}: " in saved
    after = listing(root)
    assert (after.classes, after.train, after.val) == (before.classes, before.train, before.val)
    assert np.array_equal(label_map(after), label_map(before))


def test_lines_of_labelme_have_no_area(tmp_path):
    """They are left out and counted."""
    assert "Shapes without an area are left out: 2 of kind 'line'." in listing(export(tmp_path, "labelme")).remarks


SUPERVISELY = {"classes": [{"title": "road", "shape": "polygon"}, {"title": "car", "shape": "bitmap"}]}


def supervisely(root: Path) -> np.ndarray:
    """A project of two data sets: a polygon with a hole, and a bitmap; the label map of each image."""
    expected = np.zeros(SIZE, np.uint8)
    expected[2:12, 4:20] = 1
    expected[4:8, 6:10] = 0
    disc = np.zeros((6, 5), bool)
    disc[1:5, 1:4] = True
    expected[14:20, 10:15][disc] = 2
    picture = io.BytesIO()
    Image.fromarray(disc).save(picture, "PNG")
    bitmap = base64.b64encode(zlib.compress(picture.getvalue())).decode()
    hole, outer = [[6, 4], [10, 4], [10, 8], [6, 8]], [[4, 2], [20, 2], [20, 12], [4, 12]]
    objects = [
        {"classTitle": "road", "geometryType": "polygon", "points": {"exterior": outer, "interior": [hole]}},
        {"classTitle": "car", "geometryType": "bitmap", "bitmap": {"data": bitmap, "origin": [10, 14]}},
    ]
    write(root / "meta.json", json.dumps(SUPERVISELY))
    for part, name in (("train", "a"), ("train", "b"), ("val", "c")):
        photo(root / part / "img" / f"{name}.jpg", size=SIZE)
        content = {"size": {"height": 24, "width": 32}, "objects": objects}
        write(root / part / "ann" / f"{name}.jpg.json", json.dumps(content))
    return expected


def test_supervisely(tmp_path):
    """Its data sets are the splits; holes stay free."""
    expected = supervisely(tmp_path)
    found = listing(tmp_path)
    assert (names(found.train), names(found.val)) == (["train/img/a.jpg", "train/img/b.jpg"], ["val/img/c.jpg"])
    assert found.classes == ("background", "road", "car")
    assert np.array_equal(label_map(found), expected)


def test_yolo_names_its_parts(tmp_path):
    """As Ultralytics and Roboflow write them, by folders or lists; an empty file is no annotation."""
    text = EXPORTS["yolo"]["files"]["labels/a.txt"]
    for part, name in (("train", "a"), ("train", "b"), ("valid", "c"), ("train", "d")):
        photo(tmp_path / part / "images" / f"{name}.jpg", size=SIZE)
        write(tmp_path / part / "labels" / f"{name}.txt", "" if name == "d" else text)
    write(tmp_path / "data.yaml", "train: ../train/images\nval: ../valid/images\nnc: 2\nnames: ['road', 'car']\n")
    found = listing(tmp_path)
    assert (labelled(found.train), names(found.val)) == (
        ["train/images/a.jpg", "train/images/b.jpg"],
        ["valid/images/c.jpg"],
    )
    assert names(found.train)[-1] == "train/images/d.jpg"
    assert "on 1 of 4 listed images nothing is annotated" in found.warnings[0][1]


def test_yolo_may_name_the_images_that_train_to_validate_too(tmp_path):
    """As files for a few images do (coco128-seg.yaml): some are held out. In dataset.yaml it is refused, in words."""
    for name in "abcd":
        photo(tmp_path / "images" / f"{name}.jpg", size=SIZE)
        write(tmp_path / "labels" / f"{name}.txt", EXPORTS["yolo"]["files"]["labels/a.txt"])
    write(tmp_path / "data.yaml", "train: images\nval: images\nnames: ['road', 'car']\n")
    found = listing(tmp_path)
    assert (len(found.train), len(found.val)) == (3, 1)
    part = "{images: images, yolo: labels}"
    write(tmp_path / "dataset.yaml", f"train: {part}\nval: {part}\n")
    assert "all images of `train` are those of `val` as well" in refusal(tmp_path)


def test_a_broken_file_of_settings_is_named(tmp_path):
    """Without it, no labels would be found; a key that stands twice would number the classes one way or the other."""
    root = export(tmp_path, "yolo")
    write(root / "data.yaml", "train: images\nnames: [road, car]\nnames: [car, road]\n")
    with pytest.raises(UserError, match=r"data\.yaml: not valid YAML \('names' stands there twice, line 3, column 1\)"):
        listing(root)


def test_two_files_of_one_format_are_training_and_validation(tmp_path):
    """COCO's own names, with the images in folders of the same names or all in one."""
    tree = json.loads(EXPORTS["coco"]["files"]["annotations.json"])
    for part, name in (("train2017", "a"), ("val2017", "b")):
        photo(tmp_path / part / f"{name}.jpg", size=SIZE)
        tree["images"][0]["file_name"] = f"{name}.jpg"
        write(tmp_path / "annotations" / f"instances_{part}.json", json.dumps(tree))
        write(tmp_path / "annotations" / f"person_keypoints_{part}.json", json.dumps(tree))
    found = listing(tmp_path)
    assert (names(found.train), names(found.val)) == (["train2017/a.jpg"], ["val2017/b.jpg"])
    (tmp_path / "images").mkdir()
    for file in ("train2017/a.jpg", "val2017/b.jpg"):
        (tmp_path / file).rename(tmp_path / "images" / Path(file).name)
        (tmp_path / file).parent.rmdir()
    found = listing(tmp_path)
    assert (names(found.train), names(found.val)) == (["images/a.jpg"], ["images/b.jpg"])
    assert not find(tmp_path).problems


BAD = {
    "labelme": [
        ("images/a.json", lambda text: text[:100], "a.json: not valid JSON"),
        ("images/a.json", lambda text: text.replace('"label": "road"', '"label": 7', 1), "a.json: shapes[0].label"),
        ("images/a.json", lambda text: text.replace('"imageHeight": 24', '"imageHeight": 25'), "labels for the"),
    ],
    "yolo": [
        ("labels/a.txt", lambda text: text.replace("\n1 ", "\n9 "), "a.txt: line 2: no class has number 9"),
        ("labels/a.txt", lambda text: "0 0.1 0.1 0.2 0.2\n", "a.txt: line 1: a box"),
        ("labels/a.txt", lambda text: "0 0.1 0.1 0.2 0.2 0.3 0.3 0.4\n", "a.txt: line 1: a polygon is x, y"),
        ("labels/a.txt", lambda text: "0 0.1 0.1 0.2 nan 0.3 0.3\n", "a.txt: line 1: a coordinate is not finite"),
        ("labels/a.txt", lambda text: "road 0.1 0.1\n", "a.txt: line 1: not a class and coordinates"),
    ],
    "cvat": [
        ("annotations.xml", lambda text: text[:-30], "not valid XML"),
        ("annotations.xml", lambda text: text.replace('label="car"', 'label="bus"'), "the label 'bus' is used"),
        ("annotations.xml", lambda text: text.replace('rle="211,', 'rle="212,'), "image 'a.jpg', mask 1: runs must be"),
        (
            "annotations.xml",
            lambda text: text.replace(";15.00,6.00;15.00,20.00;9.00,14.50", ""),
            "polygon 2: a polygon",
        ),
        ("annotations.xml", lambda text: text.replace("3.00,6.00;", "x;"), "image 1 ('a.jpg'): could not convert"),
        ("annotations.xml", lambda text: text.replace("<annotations>", "<!DOCTYPE a []><annotations>"), "DOCTYPE"),
    ],
    "label_studio": [
        (
            "project-1.json",
            lambda text: text.replace('"rle": [0, 0', '"rle": [1, 0'),
            "result[1]: its run lengths are of",
        ),
        ("project-1.json", lambda text: text.replace('"data"', '"date"', 1), "project-1.json: [0]: 'data'"),
        (
            "project-1.json",
            lambda text: text.replace('"image_rotation": 0', '"image_rotation": 90', 1),
            "[0]: result[0]: drawn on an image that was turned by 90° in Label Studio. Turn it back there",
        ),
        ("project-1.json", lambda text: text.replace('"original_width": 32', '"original_width": 31'), "labels for the"),
    ],
}


def check(root: Path, file: str) -> None:
    """Decodes the first image, and says as check does if its labels do not fit."""
    if (shape := label_map(listing(root)).shape) != SIZE:
        raise UserError(f"{root / file}: {shape} labels for the pixels")


@pytest.mark.parametrize(("kind", "file", "change", "words"), [(kind, *case) for kind in BAD for case in BAD[kind]])
def test_bad_files_are_named_with_the_place(tmp_path, kind, file, change, words):
    """When they are listed, or when they are decoded."""
    root = export(tmp_path, kind)
    text = (root / file).read_text()
    assert change(text) != text
    (root / file).write_text(change(text))
    with pytest.raises(UserError) as error:
        check(root, file)
    assert str(error.value).startswith(str(root / file))
    assert words in str(error.value)


@pytest.mark.parametrize("kind", ["cvat", "label_studio", "coco"])
def test_images_that_are_not_there_are_problems(tmp_path, kind):
    """So are paths that lead elsewhere: only names of images in the folder are compared."""
    root = export(tmp_path, kind)
    file = next(path for path in root.iterdir() if path.is_file())
    outside = photo(tmp_path.parent / "outside.jpg")
    file.write_text(file.read_text().replace("-b.jpg", "-gone.jpg").replace("b.jpg", f"../../{outside.name}"))
    found = find(root)
    assert labelled(found.train) == ["images/a.jpg"]
    assert len(found.problems) == 1
    assert found.problems[0].file == file


def test_bombs_in_pictures_of_masks_are_refused(tmp_path):
    """A picture larger than its image is not unpacked."""
    supervisely(tmp_path)
    path = tmp_path / "train" / "ann" / "a.jpg.json"
    picture = io.BytesIO()
    Image.new("1", (4000, 4000)).save(picture, "PNG")
    tree = json.loads(path.read_text())
    tree["objects"][1]["bitmap"]["data"] = base64.b64encode(zlib.compress(picture.getvalue())).decode()
    path.write_text(json.dumps(tree))
    with pytest.raises(UserError, match=r"objects\[1\]: a picture of 4000×4000 pixels is larger than its image"):
        label_map(listing(tmp_path))
    tree["objects"][1]["bitmap"]["data"] = "no base64"
    path.write_text(json.dumps(tree))
    with pytest.raises(UserError, match=r"objects\[1\]: its picture of the mask cannot be read"):
        label_map(listing(tmp_path))
    tree["objects"][1]["classTitle"] = "bus"
    path.write_text(json.dumps(tree))
    with pytest.raises(UserError, match=r"a\.jpg\.json: objects\[1\]: 'bus' is none of the classes"):
        label_map(listing(tmp_path))


def apart(results: list[dict]) -> list[dict]:
    """What Label Studio exports where `Labels` are a tag of their own: each shape, and once more with its label."""
    made = []
    for result in results:
        kind = result["type"].removesuffix("labels")
        shape = {key: value for key, value in result["value"].items() if not key.endswith("labels")}
        made.append(result | {"type": kind, "value": shape})
        made.append(result | {"type": "labels", "value": shape | {"labels": result["value"][f"{kind}labels"]}})
    return made


def test_labels_of_label_studio_may_have_a_tag_of_their_own(tmp_path):
    """They are read as labels of polygons and brushes are; what has none is left out, and counted."""
    expected = label_map(listing(export(tmp_path / "one", "label_studio")))
    root = export(tmp_path / "apart", "label_studio")
    file = root / "project-1.json"
    tasks = json.loads(file.read_text())
    for annotation in (one for task in tasks for one in task["annotations"]):
        annotation["result"] = apart(annotation["result"])
        (drawn, *_) = annotation["result"]
        annotation["result"].append(drawn | {"id": "nameless"})
        keypoint = {"x": 1.0, "y": 2.0, "width": 0.3, "labels": ["road"]}
        annotation["result"].append(drawn | {"id": "k", "type": "labels", "value": keypoint})
    file.write_text(json.dumps(tasks))
    found = listing(root)
    assert np.array_equal(label_map(found), expected)
    said = "".join(found.remarks)
    assert f"{counted(len(tasks), 'shape')} without a label" in said
    assert f"Shapes without an area are left out: {len(tasks)} of kind 'labels'" in said


def test_a_video_of_cvat_is_refused(tmp_path):
    """With the way out."""
    root = export(tmp_path, "cvat")
    file = root / "annotations.xml"
    file.write_text(file.read_text().replace("</annotations>", '<track id="0" label="car"></track></annotations>'))
    assert "Export them with its frames, as 'CVAT for images'" in refusal(root)


@pytest.mark.parametrize(
    ("image", "masks"), [("{}/images/{}.png", "{}/masks/{}.png"), ("images/{1}.png", "masks/{0}/{1}.png")]
)
@pytest.mark.parametrize("part", ["", "train/"])
def test_a_mask_for_each_object(tmp_path, image, masks, part):
    """As in the Data Science Bowl: they are painted into one label map, and are no images themselves."""
    objects = np.zeros((3, *SIZE), np.uint8)
    objects[0, 2:9, 3:12] = objects[1, 8:20, 10:30] = objects[2, 0, 0] = 255
    for number, name in enumerate(("0a1", "1b2", "2c3")):
        photo(tmp_path / part / image.format(name, name), number, SIZE)
        for index in range(3 if number < 2 else 0):
            path = tmp_path / part / masks.format(name, f"object{index}")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(objects[index]).save(path)
    if part:
        shutil.copytree(tmp_path / "train", tmp_path / "val")
    found = listing(tmp_path)
    assert found.classes == ("background", "object")
    assert len(labelled(found.train)) == (2 if part else 1)
    assert len(found.train) == (3 if part else 2)
    assert len(found.val) == (2 if part else 1)
    assert np.array_equal(found.read_labels(found.val[0]), objects.any(axis=0))
    assert len(files_of(found.val[0])) == 4  # a change of any of them is noticed
    last = Path(files_of(found.val[0])[-1])
    Image.fromarray(objects[0, 1:]).save(last)
    with pytest.raises(UserError, match=f"mask {last.name}: a mask of 32×23 pixels, for an image of 32×24"):
        found.read_labels(found.val[0])


@pytest.mark.parametrize("colours", [[0, 0, 0, 255, 255, 255], [255, 255, 255, 0, 0, 0], [90, 0, 0, 0, 0, 0]])
def test_a_palette_shows_the_object_in_another_colour_than_black(tmp_path, colours):
    """Whichever of its numbers that is: some programs sort a palette by how often a colour occurs."""
    inside = np.zeros(SIZE, bool)
    inside[2:9, 3:12] = True
    for name in ("0a1", "1b2"):
        photo(tmp_path / name / "images" / f"{name}.png", len(name), SIZE)
        (tmp_path / name / "masks").mkdir()
        picture = Image.fromarray((inside != any(colours[:3])).astype(np.uint8), "P")
        picture.putpalette(colours)
        picture.save(tmp_path / name / "masks" / "object.png")
    found = listing(tmp_path)
    assert np.array_equal(found.read_labels(found.val[0]), inside)


def test_two_parts_of_one_image_each_are_no_objects(tmp_path):
    """`train/images` and `train/masks` with a single pair look the same."""
    for part in ("train", "val"):
        photo(tmp_path / part / "images" / "a.png")
        mask(tmp_path / part / "masks" / "a.png")
    found = find(tmp_path)
    assert not found.annotations
    assert len(found.val) == 1
