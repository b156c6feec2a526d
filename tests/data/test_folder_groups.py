"""Images that belong together: folders and names of patients or videos, read together and held out as a whole."""

from __future__ import annotations

import re

import pytest
import yaml
from PIL import Image

from data.folders import labelled, listing, mask, names, pairs, photo, refusal, write
from oneway.data.folder import find


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
