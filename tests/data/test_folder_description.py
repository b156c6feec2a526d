"""`dataset.yaml` has the last word, is refused with the reason, and can be written for the user."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from data.folders import SCENE, coco, listing, mask, pairs, photo, refusal, write
from oneway.common.terms import IGNORE
from oneway.data.folder import describe
from oneway.data.folder.description import FILE, Description, read_description
from oneway.data.folder.yaml_text import to_yaml


def test_a_description_has_the_last_word(tmp_path):
    """Folders of other names, names for the classes, values, an ignored one; the rest stays as found."""
    for index in range(2):
        photo(tmp_path / "foto" / f"{index}.jpg")
        mask(tmp_path / "maske" / f"{index}.png", np.array([[7, 9], [7, 1]]))
    write(
        tmp_path / "dataset.yaml",
        "classes: {7: road, 9: car}\nignore: [1]\ntrain: {images: foto, masks: maske}\ncolours: [[1, 2, 3], '#ff0000']",
    )
    found = listing(tmp_path)
    assert (found.classes, found.colours) == (("road", "car"), ((1, 2, 3), (255, 0, 0)))
    assert found.read_labels(found.val[0]).tolist() == [[0, 1], [0, IGNORE]]
    root = pairs(tmp_path / "named")
    write(root / "dataset.yaml", "classes: [sky, road, car]")
    assert listing(root).classes == ("sky", "road", "car")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clases: [a]", "unknown key 'clases'. Did you mean 'classes'?"),
        ("train: {image: a}", "Did you mean 'train.images'?"),
        ("classes: [a, no]", "quotes"),
        ("classes: [a, a]", "twice"),
        ("classes: {a: 1}", "write [name, …]"),
        ("classes: {a: [1, 2, 3], b: [1, 2, 3]}", "same colour"),
        ("classes: {a: [1, 2, 300]}", "0 to 255"),
        ("classes: {-1: a}", "from 0 on"),
        ("classes: [a, b]\ncolours: [[1, 2, 3]]", "1, for 2 classes"),
        ("classes: [a, b]\nignore: [1]", "stands for the class 'b'"),
        ("classes: [a, b]\nignore: [[1, 2, 3]]", "should be a number"),
        ("classes: {a: [1, 2, 3]}\nignore: [255]", "should be a colour"),
        ("train: {images: a, masks: b, coco: c}", "not from both"),
        ("train: {images: images, coco: c}\nclasses: {3: a}", "write [name, …], or leave it out"),
        ("train: {images: images, coco: c}\nignore: [3]", "come from coco, not from masks"),
        ("val: {images: a}", "`train` as well"),
        ("train: {images: nowhere}", "no such folder"),
        ("train: 3", "write {images"),
        ("unlabelled: 3", "write [FOLDER"),
        ("[", "not valid YAML"),
        ("[" * 1000, "not valid YAML"),
        ("3", "expected keys and values"),
        ("classes: {a: [1, 2, 3], b: }", "nothing stands behind 'b'"),
        ("classes:\n  Dach: #e6194b\n  Wiese: #3cb44b", "put colours in quotes"),
        ("classes: [a: [1, 2, 3], a: [4, 5, 6]]", "'a' appears twice"),
        ("classes: [a: [1, 2, 3], b]", "is no name"),
        ("classes:\n  0: a\n  1: b\n  1: c", "'1' stands there twice, line 4, column 3"),
        ("classes: {car: [0, 0, 142], car: [0, 0, 70]}", "'car' stands there twice"),
        ("classes: {0: a, 1-3: b, 2: c}", "2 stands for 'b' and, in 2, for 'c'"),
        ("classes: {0: a, 0-3: b}", "0 stands for 'a' and, in '0-3', for 'b'"),
        ("classes: 2001-13-45", "not valid YAML"),
        ("classes: !!python/object/apply:os.getcwd []", "not valid YAML"),
        (f"classes: [{', '.join(f'c{index}' for index in range(256))}]", "too many"),
    ],
)
def test_a_bad_description_is_refused_with_the_reason(tmp_path, text, words):
    """Misspelt keys, names that YAML takes for something else, what does not fit together, and what is no YAML."""
    pairs(tmp_path)
    write(tmp_path / "dataset.yaml", text)
    assert words in refusal(tmp_path)
    assert str(tmp_path) in refusal(tmp_path)


@pytest.mark.parametrize("text", ["", "\n", "# classes: [a, b, c]\n\n  # ignore: [255]"])
def test_a_description_may_be_blank(tmp_path, text):
    """Every key can be left out, and so can all of them."""
    write(pairs(tmp_path) / "dataset.yaml", text)
    assert listing(tmp_path).classes == ("class 0", "class 1", "class 2")


@pytest.mark.parametrize(
    ("dashed", "plain"),
    [
        ("- a: [1, 2, 3]\n- b: '#040506'", "{a: [1, 2, 3], b: '#040506'}"),
        ("- 7: a\n- 9: b", "{7: a, 9: b}"),
    ],
)
def test_dashes_before_classes_change_nothing(tmp_path, dashed, plain):
    """A list of one name and colour each is read as the table that it means."""
    described = [read_description(write(tmp_path / FILE, f"classes:\n{text}")) for text in (dashed, f"  {plain}")]
    assert described[0] == described[1]
    assert described[0].names == ("a", "b")


def test_a_description_by_another_name_is_not_overlooked(tmp_path):
    """What someone wrote is read, or refused."""
    write(pairs(tmp_path) / "dataset.yml", "classes: [a, b, c]")
    assert "Call it dataset.yaml" in refusal(tmp_path)


@pytest.mark.parametrize("last", ["", "? *i\n: 1", "x: {? *i : 1, ? *h : 1}"])
def test_references_within_yaml_do_not_explode(tmp_path, last):
    """A few lines that would be written out as a billion names, also where a key should be."""
    lines = ["classes:", "- &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"- &{name} [{', '.join([f'*{before}'] * 10)}]" for before, name in pairwise("abcdefghi")]
    pairs(tmp_path)
    write(tmp_path / "dataset.yaml", "\n".join([*lines, last]))
    assert len(refusal(tmp_path)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("path", ["../outside", "/tmp", "images/../../outside"])
def test_paths_of_a_description_that_leave_the_folder_are_refused(tmp_path, path):
    """Of images, masks, unlabelled folders and annotations."""
    photo(tmp_path / "outside" / "a.jpg")
    root = pairs(tmp_path / "data")
    for text in (
        f"train: {{images: {path}, masks: masks}}",
        f"train: {{images: images, masks: {path}}}",
        f"train: {{images: images, coco: {path}/a.json}}",
        f"unlabelled: [{path}]",
    ):
        write(root / "dataset.yaml", text)
        assert "leads out of" in refusal(root)


def coloured(root: Path) -> None:
    pairs(root, kind="RGB")
    write(root / "labelmap.txt", "sky & sea:0,0,0::\n'road':128,64,128::\n3:0,0,142::\n")


def annotated(root: Path) -> None:
    names = [f"{index}.jpg" for index in range(3)]
    for name in names:
        photo(root / "images" / name)
    coco(root / "instances.json", names)


def as_camvid(root: Path) -> None:
    for part in ("train", "val"):
        photo(root / part / "a.png")
        mask(root / f"{part}annot" / "a.png")


def in_parts(root: Path) -> None:
    pairs(root / "train")
    pairs(root / "valid")
    photo(root / "unlabelled" / "u: #.jpg")


def as_voc(root: Path) -> None:
    for name in ("a", "b"):
        photo(root / "JPEGImages" / f"{name}.jpg")
        mask(root / "SegmentationClass" / f"{name}.png", SCENE * 5, "P")


FOLDERS: dict[str, Callable[[Path], object]] = {
    "L": pairs,
    "P": lambda root: pairs(root, kind="P"),
    "RGB": coloured,
    "binary": lambda root: pairs(root, values=np.where(SCENE == 1, 255, 0)),
    "coco": annotated,
    "camvid": as_camvid,
    "split": in_parts,
    "voc": as_voc,
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_saved_description_gives_the_same_listing(tmp_path, kind):
    """Written with comments, read back, and listed again: same items, classes, colours and labels."""
    FOLDERS[kind](tmp_path)
    before, description = listing(tmp_path), describe(tmp_path).description
    file = write(tmp_path / "dataset.yaml", to_yaml(description))
    assert read_description(file) == description
    after = listing(tmp_path)
    for attribute in ("classes", "colours", "train", "val"):
        assert getattr(after, attribute) == getattr(before, attribute)
    for item in after.val:
        assert np.array_equal(after.read_labels(item), before.read_labels(item))


def test_descriptions_without_classes_only_name_folders():
    """Nothing has to be said."""
    assert Description().names == ()
    assert "classes" not in to_yaml(Description(train={"images": "a"})).split("\n", 1)[1]


def test_only_classes_that_can_be_renamed_are_offered_for_it(tmp_path):
    """COCO brings its own, and `classes` beside them is refused."""
    photo(tmp_path / "coco" / "images" / "a.jpg")
    coco(tmp_path / "coco" / "instances.json", ["a.jpg"])
    assert "Rename" not in to_yaml(describe(tmp_path / "coco").description)
    assert "Rename" in to_yaml(describe(pairs(tmp_path / "masks")).description)
