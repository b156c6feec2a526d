"""Files that cannot be read: a few are left out if the user says so, and named; more are refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from rich.console import Console

from data.decoded import DESCRIPTION, SIZES, cache_folder, paint, photograph, refusal, settings
from oneway.common.errors import UserError
from oneway.data import list_files, load
from oneway.data.check import check_data
from oneway.data.dataset import Samples


def many(folder: Path, images: int, broken: list[str]) -> Path:
    """A set with a mask for every tenth training image and ten to validate on; of the broken files, half is there."""
    for kind in ("images", "masks"):
        for split in ("train", "val"):
            (folder / split / kind).mkdir(parents=True)
    for seed in range(images):
        photograph(folder / f"train/images/{seed:03d}.png", seed)
        if seed % 10 == 0:
            paint(folder / f"train/masks/{seed:03d}.png", seed)
    for seed in range(1000, 1010):
        photograph(folder / f"val/images/{seed}.png", seed)
        paint(folder / f"val/masks/{seed}.png", seed)
    (folder / "dataset.yaml").write_text(yaml.safe_dump(DESCRIPTION))
    for file in broken:
        shorten_to_half(folder / file)
    return folder


def shorten_to_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def said(root: Path, split: str = "train", **changes: object) -> tuple[Samples, str]:
    """Samples, and what a person was told meanwhile."""
    console = Console(width=500, color_system=None)
    with console.capture() as capture:
        samples = load(settings(root, skip_unreadable=True, **changes), console).read(split)
    return samples, capture.get()


BROKEN = ["train/images/007.png", "train/masks/050.png"]


@pytest.fixture(scope="module")
def two_broken(tmp_path_factory) -> Path:
    """An image and a mask of 200 cannot be read."""
    return many(tmp_path_factory.mktemp("many") / "photos", 200, BROKEN)


def test_a_few_files_that_cannot_be_read_are_left_out_and_named(two_broken):
    """All others are there with their own pixels and labels; the same again from the cache."""
    for _ in range(2):
        samples, words = said(two_broken)
        assert len(samples) == 198
        assert samples.labelled == 19
        assert not {"train/images/007.png", "train/images/050.png"} & set(samples.names)
        assert "2 of the 200 training images cannot be read and are left out" in words
        assert all(file in words for file in BROKEN)
        for index in (5, 6, 18, 19, 30, 197):
            with Image.open(two_broken / samples.names[index]) as image:
                assert np.array_equal(samples.image(index), np.asarray(image))
        mask = two_broken / samples.names[18].replace("images", "masks")
        assert np.array_equal(samples.label_map(18), np.asarray(Image.open(mask)))


def test_without_the_flag_they_are_refused_and_the_flag_is_named(two_broken):
    """Whether they have been left out before, which costs no decoding, or not."""
    for cache in ("cache", "another cache", "cache"):
        message = refusal(two_broken, cache=two_broken.parent / cache)
        assert [file for file in BROKEN if f"{file}: " in message] == ["train/masks/050.png"]  # the other has no labels
        assert "--data.skip-unreadable" in message
        said(two_broken)


def test_what_is_left_out_is_no_part_of_the_content(two_broken, tmp_path):
    """The same images without those two have the same digest: what trains is what counts."""
    without = many(tmp_path / "photos", 200, [])
    for file in ("train/images/007.png", "train/images/050.png", "train/masks/050.png"):
        (without / file).unlink()
    assert said(two_broken)[0].content == said(without)[0].content


def test_too_many_are_refused_with_count_share_and_files(tmp_path):
    """Two of a hundred are more than one in a hundred; of ten validation images, one is."""
    root = many(tmp_path / "photos", 100, ["train/images/010.png", "train/masks/020.png", "val/images/1004.png"])
    message = refusal(root, skip_unreadable=True)
    assert "2 of the 100 training images (2.0 %) cannot be read" in message
    assert "leaves out 1 % at most" in message
    assert "train/images/010.png: " in message
    assert "train/masks/020.png: " in message
    with pytest.raises(UserError, match=r"1 of the 10 validation images \(10\.0 %\)"):
        said(root, "val")
    assert "--data.skip-unreadable" not in refusal(root)  # which would be no way out


def test_one_in_a_hundred_may_be_left_out(tmp_path):
    """The limit itself is allowed; left out of those that validate, the remark says what scores are of."""
    root = many(tmp_path / "photos", 100, ["train/images/010.png"])
    assert len(said(root)[0]) == 99
    for seed in range(1010, 1100):
        photograph(root / f"val/images/{seed}.png", seed)
        paint(root / f"val/masks/{seed}.png", seed)
    shorten_to_half(root / "val/masks/1044.png")
    samples, words = said(root, "val")
    assert len(samples) == 99
    assert "1 of the 100 validation images cannot be read and is left out" in words
    assert "scores are of the other 99: val/masks/1044.png" in words


def test_labels_that_mean_nothing_are_not_left_out_as_unreadable(tmp_path):
    """A mask with a wrong value, or of another size than its image, is refused with the flag too."""
    root = many(tmp_path / "photos", 200, BROKEN)
    Image.fromarray(np.full(SIZES[0], 9, np.uint8)).save(root / "train/masks/030.png")
    Image.fromarray(np.zeros((5, 5), np.uint8)).save(root / "train/masks/040.png")
    message = refusal(root, skip_unreadable=True)
    assert "2 errors" in message
    assert "train/masks/030.png: 600 pixels have value 9" in message
    assert "train/masks/040.png: 5×5 labels" in message


def test_what_was_left_out_may_be_repaired_or_removed_without_refresh(tmp_path):
    """It played no part: the set is decoded again; a file that did play one is named all the same."""
    root = many(tmp_path / "photos", 200, BROKEN)
    said(root)
    photograph(root / "train/images/007.png", 7)
    samples, words = said(root)
    assert len(samples) == 199
    assert "1 of the 200 training images cannot be read and is left out" in words
    for kind in ("images", "masks"):
        (root / f"train/{kind}/050.png").unlink()
    samples, words = said(root)
    assert len(samples) == 199
    assert not words
    shorten_to_half(root / "train/images/123.png")
    with pytest.raises(UserError, match=r"123\.png has other content"):
        said(root)
    assert len(said(root, refresh=True)[0]) == 198


def test_what_was_left_out_may_be_touched(tmp_path):
    """Its content is compared, as that of others is, and nothing is decoded again."""
    root = many(tmp_path / "photos", 200, BROKEN)
    said(root)
    pixels = cache_folder(root) / "train/pixels"
    decoded = pixels.stat().st_ino
    for path in root.glob("train/*/*"):
        os.utime(path, (1, 1))
    assert len(said(root)[0]) == 198
    assert pixels.stat().st_ino == decoded


def test_a_few_unlabelled_images_are_left_out_without_being_asked(tmp_path):
    """Up to one in ten, which the user can change; counted and named, by check as well; what has labels is refused."""
    broken = [f"train/images/0{seed}.png" for seed in (11, 12, 13)]
    root = many(tmp_path / "photos", 40, broken)
    console = Console(width=500, color_system=None)
    with console.capture() as capture:
        samples = load(settings(root), console).read("train")
    assert (len(samples), samples.labelled) == (37, 4)
    assert "3 of the 40 training images cannot be read and are left out (--data.unreadable)" in capture.get()
    assert all(file in capture.get() for file in broken)
    findings = check_data(list_files(settings(root)), Console(quiet=True)).findings
    assert [finding.level for finding in findings if finding.file in broken] == ["warning"] * 3
    assert "3 of the 36 unlabelled images (8.3 %) cannot be read, and 5 % at most" in refusal(root, unreadable=0.05)
    shorten_to_half(root / "train/images/014.png")
    message = refusal(root, refresh=True)
    assert "4 of the 36 unlabelled images (11.1 %) cannot be read, and 10 % at most are left out" in message
    assert "train/images/011.png: " in message
    assert "Save them again, or remove them. --data.unreadable 0.12 leaves them out. Run `oneway check" in message
    assert check_data(list_files(settings(root)), Console(quiet=True)).has_errors
    with console.capture():
        assert len(load(settings(root, unreadable=0.12, refresh=True), console).read("train")) == 36
    shorten_to_half(root / "train/images/010.png")
    assert "train/images/010.png: " in refusal(root, unreadable=0.2, refresh=True)
