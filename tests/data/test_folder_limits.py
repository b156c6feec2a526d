"""What does not fit is named, what would mislead is refused, and nothing outside a folder is touched."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from data.folders import labelled, listing, mask, names, pairs, photo, refusal, write
from oneway.common.errors import UserError
from oneway.data.folder import describe, find


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
    assert [problem.file.name for problem in find(tmp_path).problems] == ["b.HEIC"]
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


def test_too_few_labels_are_refused(tmp_path):
    """One labelled image cannot train and validate; with a validation set it can train."""
    pairs(tmp_path / "train", 1)
    message = refusal(tmp_path)
    assert "1 of 1 training image has labels" in message
    assert "dataset.yaml" in message
    pairs(tmp_path / "val", 1)
    assert len(listing(tmp_path).train) == 1
    photo(tmp_path / "none" / "images" / "a.jpg")
    assert "0 of 1" in refusal(tmp_path / "none")


def test_missing_and_empty_folders_are_refused(tmp_path):
    """And a file in place of a folder."""
    assert "none: no such file or folder." in refusal(tmp_path / "none")
    assert "none.zip: no such file or folder." in refusal(tmp_path / "none.zip")
    assert "no image found" in refusal(tmp_path)
    file = write(tmp_path / "file.tar", "")
    assert "not a folder. Folders and .zip files are read; unpack any other archive." in refusal(file)
    pairs(tmp_path)
    assert "no such file or folder" in refusal(tmp_path, tmp_path / "none")


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


def test_links_to_folders_are_named_with_what_to_do(tmp_path):
    """Inside, files count once, where they lie; for those outside, a command makes a folder that can be read."""
    root, outside = pairs(tmp_path / "set"), photo(tmp_path / "outside" / "far.jpg")
    photo(root / "more" / "near.jpg", 9)
    (root / "images" / "more").symlink_to("../more")
    (problem,) = find(root).problems
    assert problem.message == "a link to the folder more, which is not followed: files count once, where they lie."
    assert any("`unlabelled: [more]` in dataset.yaml adds it" in remark for remark in listing(root).remarks)
    (root / "unlabelled").symlink_to("more")
    assert "unlabelled/near.jpg" in names(find(root).train)
    assert not any("adds it" in remark for remark in listing(root).remarks)
    (root / "images" / "far").symlink_to(outside.parent)
    words = shlex.split(refusal(root).split("`")[1])
    assert words == ["cp", "-RLl", str(root), f"{root}-whole"]
    subprocess.run(words, check=True)
    assert "images/far/far.jpg" in names(find(Path(words[-1])).train)
    write(root / "dataset.yaml", "train: {images: ../outside}")
    assert "`cp" not in refusal(root)


def test_links_in_a_circle_and_pipes_do_no_harm(tmp_path):
    """Links that only lead to each other are reported or refused in words, depending on Python; pipes are no files."""
    root = pairs(tmp_path)
    os.mkfifo(root / "images" / "pipe.jpg")
    assert len(find(root).train) == 4
    for link, target in (("a.jpg", "b.jpg"), ("b.jpg", "a.jpg")):
        (root / "images" / link).symlink_to(target)
    try:
        assert {problem.file.name for problem in find(root).problems} == {"a.jpg", "b.jpg"}
    except UserError as error:
        assert "leads nowhere" in str(error)  # noqa: PT017


def test_names_that_cannot_be_shown_are_reported(tmp_path):
    """Control characters, and bytes that are no UTF-8."""
    pairs(tmp_path)
    (tmp_path / "images" / "a\nb.jpg").touch()
    Path(str(tmp_path / "images" / "c\udcff.jpg")).touch()
    found = find(tmp_path).problems
    assert [problem.file for problem in found] == [tmp_path / "images"] * 2
    assert all(problem.message.isascii() for problem in found)


def test_reading_changes_nothing(tmp_path):
    """No file is written, renamed or touched."""
    pairs(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))}
    listing(tmp_path)
    describe(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))} == before
