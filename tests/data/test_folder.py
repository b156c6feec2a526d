"""Facts about reading folders: each layout is found, each kind of mask understood, nothing outside is touched."""

from __future__ import annotations

import json
import os
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.test_coco import compress
from oneway.data.dataset import IGNORE
from oneway.data.folder import describe, find, list_folder, problems
from oneway.data.folder.description import Description, read_description
from oneway.errors import UserError

SCENE = np.zeros((6, 8), np.uint8)
SCENE[1:4, 2:7] = 1
SCENE[4:, :3] = 2
PALETTE = ((0, 0, 0), (128, 64, 128), (0, 0, 142))


def photo(path: Path, value: int = 0, size: tuple[int, int] = SCENE.shape) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size[::-1], (value, 0, 0)).save(path)
    return path


def mask(path: Path, values: np.ndarray = SCENE, kind: str = "L") -> Path:
    """A mask of numbers, in a palette, or in the colours of that palette."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(values, np.uint8))
    if kind == "P":
        image = image.convert("P")
        image.putpalette([*np.ravel(PALETTE).tolist(), *[9] * (768 - 9)])
    elif kind == "RGB":
        image = Image.fromarray(np.array(PALETTE, np.uint8)[values])
    image.save(path)
    return path


def pairs(root: Path, count: int = 4, values: np.ndarray = SCENE, kind: str = "L") -> Path:
    """`images/` and `masks/` with as many pairs."""
    for index in range(count):
        photo(root / "images" / f"{index}.jpg", index)
        mask(root / "masks" / f"{index}.png", values, kind)
    return root


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def coco(path: Path, names: list[str], height: int = 6, width: int = 8) -> Path:
    """The scene as a box and as compressed run lengths, in each of the images."""
    flat = np.concatenate([[0], (SCENE == 2).T.ravel()])
    changes = np.flatnonzero(np.diff(flat))
    counts = np.diff(np.concatenate([[0], changes, [SCENE.size]])).tolist()
    shapes = [[[2, 1, 7, 1, 7, 4, 2, 4]], {"counts": compress(counts), "size": [height, width]}]
    tree = {
        "images": [
            {"id": index, "file_name": name, "height": height, "width": width} for index, name in enumerate(names)
        ],
        "annotations": [
            {"image_id": index, "category_id": category + 1, "segmentation": shape}
            for index in range(len(names))
            for category, shape in enumerate(shapes)
        ],
        "categories": [{"id": 1, "name": "road"}, {"id": 2, "name": "car"}],
    }
    return write(path, json.dumps(tree))


def listing(root: Path, unlabelled: Path | None = None, holdout: float = 0.25, seed: int = 0):
    return list_folder(root, unlabelled, holdout, seed)


def refusal(root: Path, unlabelled: Path | None = None) -> str:
    with pytest.raises(UserError) as error:
        listing(root, unlabelled)
    return str(error.value)


def names(items) -> list[str]:
    return [item.name for item in items]


def labelled(items) -> list[str]:
    return [item.name for item in items if item.mask]


def test_all_kinds_of_masks_of_one_scene_give_the_same_label_map(tmp_path):
    """Numbers, palette, colours and COCO, to the pixel; and a binary one gives what is 255 in it."""
    for kind in ("L", "P", "RGB"):
        pairs(tmp_path / kind, 2, kind=kind)
    write(
        tmp_path / "RGB" / "labelmap.txt", "# label:color_rgb:parts:actions\na:0,0,0::\nb:128,64,128::\nc:0,0,142::\n"
    )
    for index in range(2):
        photo(tmp_path / "coco" / "images" / f"{index}.jpg")
    coco(tmp_path / "coco" / "annotations" / "instances.json", ["0.jpg", "1.jpg"])
    for kind in ("L", "P", "RGB", "coco"):
        found = listing(tmp_path / kind)
        assert len(found.classes) == 3
        for item in (*found.train, *found.val):
            assert np.array_equal(found.read_labels(item), SCENE), kind
    binary = listing(pairs(tmp_path / "binary", 2, np.where(SCENE == 1, 255, 0)))
    assert np.array_equal(binary.read_labels(binary.val[0]), SCENE == 1)


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


def test_clutter_is_passed_over_and_what_cannot_be_read_is_reported(tmp_path):
    """Hidden files and what file managers and archives leave; a HEIC photograph is worth a word."""
    pairs(tmp_path)
    for name in (
        "images/.a.jpg",
        "images/Thumbs.db",
        "images/.hidden/a.jpg",
        "images/__MACOSX/a.jpg",
        "images/notes.txt",
    ):
        write(tmp_path / name, "")
    assert not find(tmp_path).problems
    write(tmp_path / "images" / "b.HEIC", "")
    assert [problem.file.name for problem in problems(tmp_path)] == ["b.HEIC"]
    assert len(find(tmp_path).train) == 4


def test_problems_with_single_files(tmp_path):
    """A mask without image, two images of one name, two masks of one image, an image that cannot validate."""
    pairs(tmp_path / "train")
    pairs(tmp_path / "val", 1)
    photo(tmp_path / "train" / "images" / "1.png")
    mask(tmp_path / "train" / "masks" / "2.tif")
    mask(tmp_path / "train" / "masks" / "lost.png")
    photo(tmp_path / "val" / "images" / "bare.jpg")
    found = find(tmp_path)
    assert {problem.file.relative_to(tmp_path).as_posix(): problem.message for problem in found.problems} == {
        "train/images/1.png": "left out: but for the suffix it has the name of 1.jpg. Rename or remove it.",
        "train/masks/2.tif": "left out: 2.png is the mask of the same image. Remove one of them.",
        "train/masks/lost.png": "no image has the name of this mask. Add the image, or remove the mask.",
        "val/images/bare.jpg": "left out: an image without labels cannot validate.",
    }
    assert labelled(found.train) == [f"train/images/{index}.jpg" for index in range(4)]
    assert any("4 files do not fit" in remark for remark in listing(tmp_path).remarks)


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


def test_too_few_labels_are_refused(tmp_path):
    """One labelled image cannot train and validate; with a validation set it can train."""
    pairs(tmp_path / "train", 1)
    message = refusal(tmp_path)
    assert "1 of 1 training images have labels" in message
    assert "dataset.yaml" in message
    pairs(tmp_path / "val", 1)
    assert len(listing(tmp_path).train) == 1
    photo(tmp_path / "none" / "images" / "a.jpg")
    assert "0 of 1" in refusal(tmp_path / "none")


def test_missing_and_empty_folders_are_refused(tmp_path):
    """And a file in place of a folder."""
    assert "no such folder" in refusal(tmp_path / "none")
    assert "no image found" in refusal(tmp_path)
    file = write(tmp_path / "file", "")
    assert "not a folder" in refusal(file)
    pairs(tmp_path)
    assert "no such folder" in refusal(tmp_path, tmp_path / "none")


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


def test_links_that_leave_the_folder_are_refused(tmp_path):
    """To a file or a folder, deep inside or in place of images/; those that stay are fine, or reported."""
    outside = photo(tmp_path / "outside" / "secret.jpg")
    for number, (link, target) in enumerate(
        [("images/x.jpg", outside), ("images/deep", outside.parent), ("unlabelled", outside.parent)]
    ):
        root = pairs(tmp_path / str(number))
        (root / link).symlink_to(target)
        assert f"{root / link}: leads out of {root}" in refusal(root)
    root = tmp_path / "whole"
    root.mkdir()
    (root / "images").symlink_to(outside.parent)
    assert "leads out of" in refusal(root)
    root = pairs(tmp_path / "fine")
    (root / "images" / "copy.jpg").symlink_to("0.jpg")
    (root / "images" / "broken.jpg").symlink_to("nowhere.jpg")
    (root / "images" / "round").symlink_to(".")
    found = find(root)
    assert "images/copy.jpg" in names(found.train)
    assert sorted(problem.file.name for problem in found.problems) == ["broken.jpg", "round"]
    (tmp_path / "link").symlink_to(root)
    assert len(find(tmp_path / "link").train) == len(found.train)


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


def test_names_that_cannot_be_shown_are_reported(tmp_path):
    """Control characters, and bytes that are no UTF-8."""
    pairs(tmp_path)
    (tmp_path / "images" / "a\nb.jpg").touch()
    Path(str(tmp_path / "images" / "c\udcff.jpg")).touch()
    found = problems(tmp_path)
    assert [problem.file for problem in found] == [tmp_path / "images"] * 2
    assert all(problem.message.isascii() for problem in found)


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
        ("train: {images: images, coco: c}\nclasses: [a]", "categories of coco"),
        ("val: {images: a}", "`train` as well"),
        ("train: {images: nowhere}", "no such folder"),
        ("train: 3", "write {images"),
        ("unlabelled: 3", "write [FOLDER"),
        ("[", "not valid YAML"),
        ("[" * 1000, "not valid YAML"),
        ("", "expected keys and values"),
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


def test_a_description_by_another_name_is_not_overlooked(tmp_path):
    """What someone wrote is read, or refused."""
    write(pairs(tmp_path) / "dataset.yml", "classes: [a, b, c]")
    assert "Call it dataset.yaml" in refusal(tmp_path)


def test_references_within_yaml_do_not_explode(tmp_path):
    """A few lines that would be written out as a billion names."""
    lines = ["classes:", "- &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"- &{name} [{', '.join([f'*{before}'] * 10)}]" for before, name in pairwise("abcdefghi")]
    pairs(tmp_path)
    write(tmp_path / "dataset.yaml", "\n".join(lines))
    assert len(refusal(tmp_path)) < 400 + len(str(tmp_path))


def test_numbers_are_inferred_up_to_the_largest(tmp_path):
    """0 to 2, and 255 ignored; a number that never occurs is remarked upon."""
    found = listing(pairs(tmp_path / "a", values=np.where(SCENE == 1, 255, SCENE)))
    assert found.classes == ("class 0", "class 1", "class 2")
    assert (found.read_labels(found.val[0]) == IGNORE).sum() == 15
    assert any("No mask holds 1;" in remark for remark in found.remarks)
    one_off = listing(pairs(tmp_path / "b", values=SCENE + 1))
    assert one_off.classes == ("class 0", "class 1", "class 2", "class 3")
    assert any("No mask holds 0;" in remark for remark in one_off.remarks)


def test_palette_masks_bring_their_colours_and_only_what_occurs(tmp_path):
    """Indices 0 and 2, whose colours are those of the palette."""
    found = listing(pairs(tmp_path, values=np.where(SCENE == 1, 255, SCENE), kind="P"))
    assert found.classes == ("class 0", "class 2")
    assert found.colours == (PALETTE[0], PALETTE[2])
    assert sorted(np.unique(found.read_labels(found.val[0]))) == [0, 1, IGNORE]


def test_black_and_white_is_background_and_foreground(tmp_path):
    """Stored as 0 and 255, or in one bit, or some so and some so."""
    pairs(tmp_path, 2, np.where(SCENE == 1, 255, 0))
    for index in range(2, 4):
        photo(tmp_path / "images" / f"{index}.jpg")
        Image.fromarray(SCENE == 1).save(tmp_path / "masks" / f"{index}.png")
    found = listing(tmp_path)
    assert found.classes == ("background", "foreground")
    assert all(np.array_equal(found.read_labels(item), SCENE == 1) for item in (*found.train, *found.val))


def test_colours_without_a_table_are_shown_and_proposed(tmp_path):
    """Training is refused with the colours; the proposal, saved, makes a data set."""
    pairs(tmp_path, kind="RGB")
    message = refusal(tmp_path)
    assert "[0, 0, 0], [0, 0, 142], [128, 64, 128]" in message
    assert "oneway check" in message
    proposal = describe(tmp_path)
    assert proposal.names == ("class 0", "class 1", "class 2")
    write(tmp_path / "dataset.yaml", proposal.to_yaml())
    found = listing(tmp_path)
    assert np.array_equal(found.read_labels(found.val[0]), np.array([0, 2, 1])[SCENE])


def test_cvat_tables_name_the_colours(tmp_path):
    """Its background is a class like any other; a palette in these colours is looked up too."""
    table = "# label:color_rgb:parts:actions\ncar:0,0,142::\nbackground:0,0,0::\nroad:128,64,128::\n"
    for kind in ("RGB", "P"):
        root = pairs(tmp_path / kind, kind=kind)
        write(root / "labelmap.txt", table)
        found = listing(root)
        assert found.classes == ("car", "background", "road")
        assert np.array_equal(found.read_labels(found.val[0]), np.array([1, 2, 0])[SCENE])
    root = pairs(tmp_path / "L")
    write(root / "labelmap.txt", table)
    assert listing(root).classes == ("car", "background", "road")
    write(root / "labelmap.txt", "car;1;2;3")
    assert "labelmap.txt: not a table" in refusal(root)


def test_photographs_are_no_masks(tmp_path):
    """Hundreds of colours, or thousands of numbers, make no classes."""
    rng = np.random.default_rng(0)
    pairs(tmp_path)
    for index in range(4):
        Image.fromarray(rng.integers(256, size=(40, 40, 3), dtype=np.uint8)).save(tmp_path / "masks" / f"{index}.png")
    assert "more than 255 colours" in refusal(tmp_path)
    for index in range(4):
        Image.fromarray(rng.integers(2**16, size=(40, 40), dtype=np.uint16)).save(tmp_path / "masks" / f"{index}.png")
    assert "at most 255 classes" in refusal(tmp_path)


def test_one_bad_mask_does_not_spoil_the_inference(tmp_path):
    """Of another kind or damaged: the classes are those of the others, and reading it names it."""
    pairs(tmp_path, 5)
    bad = [mask(tmp_path / "masks" / "0.png", kind="RGB"), write(tmp_path / "masks" / "1.png", "no image")]
    found = listing(tmp_path)
    assert len(found.classes) == 3
    for path in bad:
        item = next(item for item in (*found.train, *found.val) if item.mask == path)
        with pytest.raises(UserError, match=path.name):
            found.read_labels(item)


@pytest.mark.parametrize("kind", ["L", "P", "RGB", "binary", "coco", "camvid", "split", "voc"])
def test_a_saved_description_gives_the_same_listing(tmp_path, kind):
    """Written with comments, read back, and listed again: same items, classes, colours and labels."""
    if kind == "coco":
        for index in range(3):
            photo(tmp_path / "images" / f"{index}.jpg")
        coco(tmp_path / "instances.json", [f"{index}.jpg" for index in range(3)])
    elif kind == "camvid":
        for part in ("train", "val"):
            photo(tmp_path / part / "a.png")
            mask(tmp_path / f"{part}annot" / "a.png")
    elif kind == "split":
        pairs(tmp_path / "train")
        pairs(tmp_path / "valid")
        photo(tmp_path / "unlabelled" / "u: #.jpg")
    elif kind == "voc":
        photo(tmp_path / "JPEGImages" / "a.jpg")
        photo(tmp_path / "JPEGImages" / "b.jpg")
        mask(tmp_path / "SegmentationClass" / "a.png", SCENE * 5, "P")
        mask(tmp_path / "SegmentationClass" / "b.png", SCENE * 5, "P")
    else:
        values = np.where(SCENE == 1, 255, 0) if kind == "binary" else SCENE
        pairs(tmp_path, values=values, kind="L" if kind == "binary" else kind)
        if kind == "RGB":
            write(tmp_path / "labelmap.txt", "sky & sea:0,0,0::\n'road':128,64,128::\n3:0,0,142::\n")
    before, description = listing(tmp_path), describe(tmp_path)
    file = write(tmp_path / "dataset.yaml", description.to_yaml())
    assert read_description(file) == description
    after = listing(tmp_path)
    for attribute in ("classes", "colours", "train", "val"):
        assert getattr(after, attribute) == getattr(before, attribute)
    for item in after.val:
        assert np.array_equal(after.read_labels(item), before.read_labels(item))


def test_a_listing_can_be_sent_to_other_processes(tmp_path):
    """What reads the labels is a plain value."""
    found = listing(pairs(tmp_path))
    read = pickle.loads(pickle.dumps(found.read_labels))
    assert np.array_equal(read(found.val[0]), SCENE)


def test_reading_changes_nothing(tmp_path):
    """No file is written, renamed or touched."""
    pairs(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))}
    listing(tmp_path)
    describe(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))} == before


def test_descriptions_without_classes_only_name_folders():
    """Nothing has to be said."""
    assert Description().names == ()
    assert "classes" not in Description(train={"images": "a"}).to_yaml().split("\n", 1)[1]


def test_links_in_a_circle_and_pipes_do_no_harm(tmp_path):
    """Links that only lead to each other are reported or refused in words, depending on Python; pipes are no files."""
    root = pairs(tmp_path)
    os.mkfifo(root / "images" / "pipe.jpg")
    assert len(find(root).train) == 4
    for link, target in (("a.jpg", "b.jpg"), ("b.jpg", "a.jpg")):
        (root / "images" / link).symlink_to(target)
    try:
        assert {problem.file.name for problem in problems(root)} == {"a.jpg", "b.jpg"}
    except UserError as error:
        assert "leads nowhere" in str(error)  # noqa: PT017
