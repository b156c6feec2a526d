"""Decoded images on disk: what comes back, where it is kept, and what is left of it when something is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from data.decoded import (
    DESCRIPTION,
    LABELLED,
    UNLABELLED,
    cache_folder,
    photograph,
    refusal,
    same,
    settings,
    train,
)
from files import contents
from oneway.data import load


def test_pixels_and_labels_are_those_that_pillow_decodes(root):
    """Of images of three sizes, as JPEG and PNG; a palette mask holds its indices."""
    for split in ("train", "val"):
        samples = load(settings(root)).read(split)
        for index, name in enumerate(samples.names):
            with Image.open(root / name) as image:
                assert np.array_equal(samples.image(index), np.asarray(image.convert("RGB")))
            if index < samples.labelled:
                mask = (root / split / "masks" / Path(name).name).with_suffix(".png")
                assert np.array_equal(samples.label_map(index), np.asarray(Image.open(mask)))


def test_unlabelled_images_follow_the_labelled_ones(root):
    """Each kind in order of name, wherever the names would put them together."""
    samples = train(root)
    assert samples.names == tuple(f"train/images/{name}" for name in LABELLED + UNLABELLED)
    assert samples.labelled == len(LABELLED)
    assert len(samples.labels) == samples.sizes[: len(LABELLED)].prod(axis=1).sum()


def test_a_file_is_decoded_once(root):
    """The second time, files that hold nothing any more do no harm, if they claim by size and time to be the same."""
    first = train(root)
    for path in (*root.glob("*/images/*"), *root.glob("*/masks/*")):
        status = path.stat()
        path.write_bytes(bytes(status.st_size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert same(train(root), first)


def test_the_data_folder_stays_as_it_is(root):
    """To the byte and the time of change, through decoding and decoding again."""
    before = contents(root)
    train(root)
    photograph(root / "train/images/f.png", 3)
    before |= contents(root)
    train(root, refresh=True)
    assert contents(root) == before


def test_labels_are_those_of_the_description_in_force(root):
    """Numbers that change their meaning change labels that were decoded before."""
    before = train(root).labels[:]
    described = DESCRIPTION | {"classes": {2: "ground", 1: "road", 0: "car"}}
    (root / "dataset.yaml").write_text(yaml.safe_dump(described, sort_keys=False))
    assert np.array_equal(train(root).labels[:], 2 - before)
    (root / "dataset.yaml").write_text(yaml.safe_dump(DESCRIPTION))
    assert np.array_equal(train(root).labels[:], before)


def test_the_same_folder_is_the_same_wherever_one_stands(root, monkeypatch):
    """Given from above, from inside, and in full."""
    monkeypatch.chdir(root.parent)
    first = train(Path("photos"), cache=root.parent / "cache")
    monkeypatch.chdir(root)
    assert same(train(Path(), cache=root.parent / "cache"), first)
    assert same(train(root), first)
    assert len(list((root.parent / "cache").iterdir())) == 1


def test_by_default_it_is_in_the_users_cache_folder(root, monkeypatch):
    """Where XDG says, or else in ~/.cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(root.parent / "xdg"))
    assert cache_folder(root, cache=None).parent == root.parent / "xdg/oneway"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(root.parent / "home"))
    assert cache_folder(root, cache=None).parent == root.parent / "home/.cache/oneway"


def test_a_cache_folder_that_cannot_be_used_is_named(root):
    """A file is in its place."""
    (root.parent / "cache").write_text("a file")
    message = refusal(root)
    assert str(root.parent / "cache") in message
    assert "--data.cache" in message


def test_what_cannot_be_used_is_refused_and_nothing_is_kept(root):
    """The mask, the value and its place."""
    mask = np.zeros((20, 30), np.uint8)
    mask[4, 5] = 9
    Image.fromarray(mask).save(root / "train/masks/a.png")
    message = refusal(root)
    assert "train/masks/a.png: 1 pixels have value 9" in message
    assert [path.name for path in cache_folder(root).iterdir()] == [".train.lock"]


LOST: dict[str, Callable[[Path], object]] = {
    "pixels": lambda folder: (folder / "pixels").unlink(),
    "some pixels": lambda folder: os.truncate(folder / "pixels", 100),
    "labels": lambda folder: (folder / "labels").unlink(),
    "index": lambda folder: (folder / "index.json").unlink(),
    "half of the index": lambda folder: os.truncate(folder / "index.json", 100),
    "index of another version": lambda folder: (folder / "index.json").write_text('{"format": 0}'),
    "everything": shutil.rmtree,
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
def test_what_was_lost_from_the_cache_is_decoded_again(root, lose):
    """Someone tidies up; nobody is bothered."""
    before = train(root)
    kept = before.pixels[:], before.labels[:]
    lose(cache_folder(root) / "train")
    after = train(root)
    assert np.array_equal(after.pixels[:], kept[0])
    assert np.array_equal(after.labels[:], kept[1])


def test_a_user_without_a_home_folder_is_told_where_a_cache_can_be_named(root, monkeypatch):
    """In a container, the number of a user may be one that the system has no entry for."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    for variable in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert "--data.cache" in refusal(root, cache=None)
