"""`merge` in dataset.yaml makes one class of several, by the names that they have from anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from data.folders import SCENE, coco, listing, pairs, photo, refusal, write
from oneway.data.dataset import Known
from oneway.data.folder import list_folder

COLOURED = "classes: {background: [0, 0, 0], truck: [128, 64, 128], car: [0, 0, 142]}"


def with_annotations(root) -> str:
    """COCO's categories, in the order of their numbers."""
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        photo(root / name)
    file = coco(root / "instances.json", ["a.jpg", "b.jpg", "c.jpg"])
    file.write_text(file.read_text().replace("road", "truck"))
    return ""


def with_table(root) -> str:
    """A list of names beside the masks."""
    write(pairs(root) / "classes.txt", "background\ntruck\ncar\n")
    return ""


def with_names(root) -> str:
    """Names in the description itself."""
    pairs(root)
    return "classes: [background, truck, car]"


def with_colours(root) -> str:
    """The colours of masks in the description."""
    pairs(root, kind="RGB")
    return COLOURED


@pytest.mark.parametrize("made", [with_annotations, with_table, with_names, with_colours])
def test_classes_are_merged_by_their_names(tmp_path, made):
    """What the others show is of the class that takes them in, and that is said."""
    write(tmp_path / "dataset.yaml", f"{made(tmp_path)}\nmerge: {{car: [truck]}}")
    found = listing(tmp_path)
    assert found.classes == ("background", "car")
    assert "car takes in truck, as dataset.yaml says." in found.remarks
    for item in (*found.train, *found.val):
        assert np.array_equal(found.read_labels(item), SCENE > 0)
    write(tmp_path / "dataset.yaml", made(tmp_path))
    assert listing(tmp_path).label_coding != found.label_coding


@pytest.mark.parametrize(("made", "stored"), [(with_names, 2), (with_colours, [0, 0, 142])])
def test_predictions_have_what_stands_for_the_class_itself(tmp_path, made, stored):
    """In masks, and on pages; not what stands for one that it takes in, though that comes first."""
    write(tmp_path / "dataset.yaml", f"{made(tmp_path)}\nmerge: {{car: [truck]}}")
    found = listing(tmp_path)
    assert np.asarray(found.masks.picture(np.ones((1, 1), np.uint8)))[0, 0].tolist() == stored
    if made is with_colours:
        assert found.colours == ((0, 0, 0), (0, 0, 142))


def test_a_merged_class_may_have_a_new_name_or_be_the_background(tmp_path):
    """What nobody wants to tell apart is background."""
    start = with_names(tmp_path)
    write(tmp_path / "dataset.yaml", f"{start}\nmerge: {{vehicle: [car, truck]}}")
    assert listing(tmp_path).classes == ("background", "vehicle")
    write(tmp_path / "dataset.yaml", f"{start}\nmerge: {{background: [truck]}}")
    found = listing(tmp_path)
    assert found.classes == ("background", "car")
    assert np.array_equal(found.read_labels(found.val[0]), SCENE == 2)


def test_annotations_may_list_the_classes_before_or_after(tmp_path):
    """A list of classes names those that remain, and may name the others too."""
    with_annotations(tmp_path)
    for names in ("background, car", "background, truck, car"):
        write(tmp_path / "dataset.yaml", f"classes: [{names}]\nmerge: {{car: [truck]}}")
        found = listing(tmp_path)
        assert found.classes == ("background", "car")
        assert np.array_equal(found.read_labels(found.val[0]), SCENE > 0)


def test_classes_of_test_images_are_merged_too(tmp_path):
    """Whose annotations are in a file of their own."""
    for part in ("train", "test"):
        for name in ("a.jpg", "b.jpg"):
            photo(tmp_path / part / name)
        file = coco(tmp_path / f"{part}.json", ["a.jpg", "b.jpg"])
        file.write_text(file.read_text().replace("road", "truck"))
    parts = "train: {images: train, coco: train.json}\ntest: {images: test, coco: test.json}"
    write(tmp_path / "dataset.yaml", f"{parts}\nmerge: {{car: [truck]}}")
    found = listing(tmp_path)
    assert found.classes == ("background", "car")
    assert np.array_equal(found.read_labels(found.test[0]), SCENE > 0)


@pytest.mark.parametrize("values", [SCENE, np.minimum(SCENE, 1)])
def test_a_run_finds_its_merged_classes_again(tmp_path, values):
    """Also where those that were merged do not occur any more, and numbers alone name the classes."""
    pairs(tmp_path)
    write(tmp_path / "dataset.yaml", "merge: {class 1: [class 2]}")
    before = listing(tmp_path)
    pairs(tmp_path, values=values)
    again = list_folder(tmp_path, None, 0.25, 0, known=Known(classes=before.classes, masks=before.masks))
    assert again.classes == before.classes == ("class 0", "class 1")
    assert np.array_equal(again.read_labels(again.val[0]), values > 0)


@pytest.mark.parametrize(
    ("merge", "words"),
    [
        ("{car: truck}", "write {name: [other, …], …}, a class and those that it takes in, and not {'car': 'truck'}"),
        ("{car: [trck]}", "merge: Unknown class 'trck'. Did you mean 'truck'? Known: background, truck, car"),
        ("{car: [truck], background: [car]}", "'car' takes in others, so that 'background' cannot take in 'car'"),
        ("{car: [truck], background: [truck]}", "'truck' is taken in by 'car' and by 'background'"),
        ("{car: []}", "write {name: [other, …], …}"),
        ("[car, truck]", "write {name: [other, …], …}"),
    ],
)
def test_what_cannot_be_merged_is_refused(tmp_path, merge, words):
    """Names that no class has, and classes that would be two at once."""
    write(tmp_path / "dataset.yaml", f"{with_names(tmp_path)}\nmerge: {merge}")
    assert words in refusal(tmp_path)
