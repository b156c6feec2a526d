"""Files that changed after they were decoded: named where it matters, and taken as they are where it does not."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.decoded import paint, photograph, refusal, same, settings, train
from oneway.data import load


def remove(path: Path) -> None:
    path.unlink()


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def garble(path: Path) -> None:
    """As long as it was."""
    path.write_bytes(path.read_bytes()[::-1])


def replace(path: Path) -> None:
    (paint if "masks" in path.parts else photograph)(path, 10)  # of another size than any of the same name


CHANGES = {"is gone": remove, "has other content": shorten, "has other content too": garble, "is another": replace}


@pytest.mark.parametrize("file", ["train/images/b.jpg", "train/images/c.png", "train/masks/d.png"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_changed_after_decoding_is_named(root, file, change):
    """Whatever became of it: removed, shortened, garbled or another; the way out is named as well."""
    train(root)
    change(root / file)
    message = refusal(root)
    assert f"{root / file} {'is gone' if change is remove else 'has other content'}" in message
    assert "--data.refresh" in message


def test_refresh_accepts_what_has_changed(root):
    """A vanished image is no longer there, another has its new pixels, and all of it is accepted for good."""
    train(root)
    remove(root / "train/images/c.png")
    photograph(root / "train/images/e.jpg", 10)
    refreshed = train(root, refresh=True)
    assert refreshed.names == tuple(f"train/images/{name}" for name in ("a.png", "b.jpg", "d.png", "e.jpg"))
    with Image.open(root / "train/images/e.jpg") as image:
        assert np.array_equal(refreshed.image(3), np.asarray(image))
    assert same(train(root), refreshed)


def test_refresh_does_not_accept_what_cannot_be_decoded(root):
    """A broken image is refused by name, and the images decoded before stay."""
    before = train(root)
    file = root / "train/images/b.jpg"
    original = file.read_bytes()
    garble(file)
    message = refusal(root, refresh=True)
    assert "train/images/b.jpg: damaged" in message
    assert "oneway check" in message
    file.write_bytes(original)
    assert same(train(root), before)


def test_a_touched_or_copied_file_is_the_same(root):
    """Its content tells."""
    before = train(root)
    for path in root.glob("train/*/*"):
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes())
        copy.replace(path)
        os.utime(path, (1, 1))
    assert same(train(root), before)


def test_a_new_image_is_decoded_with_the_rest(root):
    """Without a question, labelled or not."""
    train(root)
    photograph(root / "train/images/f.png", 11)
    assert train(root).names[-1] == "train/images/f.png"
    photograph(root / "train/images/0.png", 12)
    paint(root / "train/masks/0.png", 12)
    samples = train(root)
    assert (samples.names[0], samples.labelled, len(samples)) == ("train/images/0.png", 4, 7)
    assert np.array_equal(samples.label_map(0), np.asarray(Image.open(root / "train/masks/0.png")))


def test_a_new_mask_makes_its_image_a_labelled_one(root):
    """Also where the order of images stays what it was: `e` is the last, and `c` the first without a mask."""
    train(root)
    paint(root / "train/masks/c.png", 2)
    assert train(root).names[:4] == tuple(f"train/images/{name}" for name in ("a.png", "b.jpg", "c.png", "d.png"))
    paint(root / "train/masks/e.png", 4)
    samples = train(root)
    assert samples.labelled == 5
    assert np.array_equal(samples.label_map(4), np.asarray(Image.open(root / "train/masks/e.png")))


@pytest.mark.parametrize("part", ["train", "val"])
def test_the_vanished_image_is_named_before_those_that_moved(tmp_path, part):
    """Without a validation set, images are held out by lot; with one of them gone, one other may change sides."""
    folder = tmp_path / "photos"
    (folder / "images").mkdir(parents=True)
    (folder / "masks").mkdir()
    for seed in range(40):
        photograph(folder / "images" / f"{seed:02d}.png", seed)
        paint(folder / "masks" / f"{seed:02d}.png", seed)
    dataset = load(settings(folder))
    dataset.read("train")
    gone = folder / (dataset.read(part).names[-1])
    gone.unlink()
    message = refusal(folder)
    first = message.partition("UTC: ")[2]
    assert first.startswith(f"{gone} is gone")
    assert message.count("does not play the part it did") <= 3  # an image with its mask, and the mask left behind
