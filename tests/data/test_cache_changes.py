"""Files that changed after they were decoded: named where it matters, and taken as they are where it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from data.decoded import paint, photograph, refusal, same, settings, train
from oneway.common.errors import UserError
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
    assert f"{root}: 1 error in the training images and their masks." in message
    assert "train/images/b.jpg: damaged" in message
    assert "oneway check" in message
    file.write_bytes(original)
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


def write_labelled(folder: Path, numbers: range, labelled: range) -> Path:
    """Photographs without a validation set, some with masks."""
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number in numbers:
        photograph(folder / "images" / f"{number:02d}.png", number)
    for number in labelled:
        paint(folder / "masks" / f"{number:02d}.png", number)
    return folder


@pytest.mark.parametrize("part", ["train", "val"])
def test_the_vanished_image_is_named_before_its_mask(tmp_path, part):
    """Without a validation set, one other may change sides where an image is gone; it is not to blame."""
    folder = write_labelled(tmp_path / "photos", range(40), range(40))
    dataset = load(settings(folder))
    dataset.read("train")
    gone = folder / (dataset.read(part).names[-1])
    gone.unlink()
    with pytest.raises(UserError) as error:
        load(settings(folder)).read(part)
    changes = str(error.value).partition("UTC: ")[2].partition(". Restore")[0]
    assert changes == f"{gone} is gone and {folder / 'masks' / gone.name} has no image of its name any more"


def test_labelling_more_images_asks_no_question(tmp_path):
    """More are held out then, and some may change sides; it is said which, and every image serves on one side."""
    folder = write_labelled(tmp_path / "photos", range(60), range(10))
    dataset = load(settings(folder))
    before = {part: dataset.read(part).names for part in ("train", "val")}
    write_labelled(folder, range(0), range(10, 40))
    console = Console(width=10_000)
    with console.capture() as capture:
        dataset = load(settings(folder), console)
        after = {part: dataset.read(part).names for part in ("train", "val")}
    assert {*after["train"], *after["val"]} == {*before["train"], *before["val"]}
    assert len(after["val"]) == 8
    note = next(line for line in capture.get().splitlines() if "other images validate" in line)
    assert next(name for name in after["val"] if name not in before["val"]) in note
    with console.capture() as capture:
        load(settings(folder), console).read("val")
    assert not capture.get()


def test_a_mask_that_another_replaces_is_named(tmp_path):
    """Its image has got other labels, though every file is as it was."""
    folder = write_labelled(tmp_path / "photos", range(4), range(4))
    dataset = load(settings(folder))
    dataset.read("train")
    dataset.read("val")
    for path in (folder / "masks").glob("*.png"):
        paint(path.with_suffix(".bmp"), int(path.stem) + 3)
    assert "masks/00.png has no image of its name any more" in refusal(folder)
