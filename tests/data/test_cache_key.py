"""Which settings let a split be decoded again: those that decide its files, its pixels or its labels, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from data.decoded import CLASSES, DESCRIPTION, photograph, settings
from oneway.common.terms import SplitName
from oneway.data import load
from oneway.data.cache import decoded as cache


class Decodes(dict[SplitName, int]):
    """How many images each split of a data set had to decode, when it was last read."""

    def read(self, root: Path, **changes: object) -> dict[SplitName, tuple[str, ...]]:
        """The names of the images that a data set has in each split, with some settings changed."""
        names: dict[SplitName, tuple[str, ...]] = {}
        for split in ("train", "val"):
            self[split] = 0
            self.split: SplitName = split
            names[split] = load(settings(root, **changes)).read(split).names
        return names


@pytest.fixture
def decodes(monkeypatch) -> Decodes:
    """Counts from now on."""
    found, decode = Decodes(), cache.decode_and_survey

    def count(*arguments):
        found[found.split] += 1
        return decode(*arguments)

    monkeypatch.setattr(cache, "decode_and_survey", count)
    return found


def describe(root: Path, **changes: object) -> None:
    (root / "dataset.yaml").write_text(yaml.safe_dump(DESCRIPTION | changes, sort_keys=False))


@pytest.mark.parametrize(
    "changes", [{"seed": 1}, {"images": 7}, {"holdout": 0.5}, {"size": (8, 8)}, {"refresh": True}], ids=str
)
def test_settings_that_do_not_change_pixels_share_what_was_decoded(root, decodes, changes):
    """Of a folder with a validation set of its own, which no share and no seed decides."""
    decodes.read(root)
    assert decodes == {"train": 5, "val": 2}
    decodes.read(root, **changes)
    assert decodes == {"train": 0, "val": 0}


def test_only_the_split_that_further_images_join_is_decoded_again(root, decodes):
    """And without them it is still there."""
    more = root.parent / "more"
    more.mkdir()
    photograph(more / "m.png", 5)
    decodes.read(root)
    decodes.read(root, unlabelled=more)
    assert decodes == {"train": 6, "val": 0}
    decodes.read(root)
    assert decodes == {"train": 0, "val": 0}


def test_what_masks_mean_decides_where_labels_are_kept(root, decodes):
    """Other classes or ignored values are decoded apart; colours to show them in, and remarks, change nothing."""
    decodes.read(root)
    for changes in ({"classes": [*CLASSES, "tree"]}, {"ignore": [7]}):
        describe(root, **changes)
        decodes.read(root)
        assert decodes == {"train": 5, "val": 2}
    describe(root, colours=["#000000", "#ff0000", "#0000ff"])
    decodes.read(root)
    assert decodes == {"train": 0, "val": 0}


def test_classes_that_yolo_numbers_otherwise_are_decoded_anew(tmp_path):
    """`data.yaml` is a file of no image; where dataset.yaml or a run has the order of classes, it alone has changed."""
    root = tmp_path / "yolo"
    for part in ("images", "labels"):
        (root / part).mkdir(parents=True)
    for name in "ab":
        photograph(root / "images" / f"{name}.png", 2)
        (root / "labels" / f"{name}.txt").write_text("0 0 0 1 0 1 1 0 1\n")
    (root / "dataset.yaml").write_text("classes: [background, cat, dog]\n")
    for names, label in (("[cat, dog]", 1), ("[dog, cat]", 2)):
        (root / "data.yaml").write_text(f"train: images\nnc: 2\nnames: {names}\n")
        samples = load(settings(root)).read("train")
        assert (samples.label_map(0) == label).all()


def test_each_hold_out_is_kept_apart(root, decodes):
    """Another share or seed holds out other images: each set of them is decoded once, and none is taken for another."""
    describe(root, val=None)
    held_out = [{}, {"seed": 1}, {"holdout": 0.5}]
    first = [decodes.read(root, **changes) for changes in held_out]
    assert len({names["val"] for names in first}) > 1
    for changes, names in zip(held_out, first, strict=True):
        assert decodes.read(root, **changes) == names
        assert decodes == {"train": 0, "val": 0}


def write_cityscapes(root: Path) -> None:
    for split, kind in (("train", "gtFine"), ("val", "gtFine"), ("train_extra", "gtCoarse")):
        image = root / "leftImg8bit" / split / "ulm" / f"{split}_leftImg8bit.png"
        mask = root / kind / split / "ulm" / f"{split}_{kind}_labelIds.png"
        for path, pixels in ((image, np.zeros((4, 8, 3), np.uint8)), (mask, np.full((4, 8), 7, np.uint8))):
            path.parent.mkdir(parents=True)
            Image.fromarray(pixels).save(path)


def test_the_coarse_images_of_cityscapes_join_training_alone(tmp_path, decodes):
    """The validation set is the same without them, with them, and with their labels; not at half the resolution."""
    root = tmp_path / "cityscapes"
    write_cityscapes(root)
    decodes.read(root, name="cityscapes")
    assert decodes == {"train": 1, "val": 1}
    for coarse in ("images", "labels"):
        decodes.read(root, name="cityscapes", coarse=coarse)
        assert decodes == {"train": 2, "val": 0}
    decodes.read(root, name="cityscapes", resolution="half")
    assert decodes == {"train": 1, "val": 1}
    decodes.read(root, name="cityscapes", seed=3, holdout=0.5)
    assert decodes == {"train": 0, "val": 0}
