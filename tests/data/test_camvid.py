"""Facts about listing and reading CamVid, on a few small files in its layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.config import Data
from oneway.config.recipes import configured
from oneway.data import QUIET, list_files, load
from oneway.data.cache import Cache
from oneway.data.dataset import Item
from oneway.data.published import with_further_images
from oneway.data.published.camvid import list_camvid
from oneway.data.splits import choose


def add(root: Path, split: str, file: str) -> None:
    """A frame of 4×6 pixels, of which the first twelve have the labels 0 to 11."""
    image, mask = root / split / file, root / f"{split}annot" / f"{Path(file).stem}.png"
    for path, pixels in ((image, np.zeros((4, 6, 3), np.uint8)), (mask, np.arange(24).reshape(4, 6) % 12)):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)


@pytest.fixture
def root(tmp_path) -> Path:
    """Two frames to train on, one to validate on."""
    root = tmp_path / "camvid"
    for split, file in (("train", "0006R0_f01.png"), ("train", "0001TP_01.jpg"), ("val", "0016E5_2.png")):
        add(root, split, file)
    return root


def names(items: tuple[Item, ...]) -> list[str]:
    return [item.name for item in items]


def refusal(*arguments: object) -> str:
    with pytest.raises(UserError) as error:
        list_camvid(*arguments)
    return str(error.value)


def test_the_layout_is_listed(root):
    """PNG or JPEG frames, in order of name, each with its mask."""
    (root / "train" / "Thumbs.db").touch()
    listing = list_camvid(root)
    assert names(listing.train) == ["train/0001TP_01.jpg", "train/0006R0_f01.png"]
    assert names(listing.val) == ["val/0016E5_2.png"]
    assert [item.mask for item in listing.train] == [
        root / "trainannot" / "0001TP_01.png",
        root / "trainannot" / "0006R0_f01.png",
    ]
    assert listing.test == ()
    assert listing.reduction == 1


def test_classes_and_colours_are_the_usual_ones(root):
    """Eleven, as SegNet ordered and coloured them."""
    listing = list_camvid(root)
    assert ", ".join(listing.classes) == (
        "sky, building, pole, road, pavement, tree, sign symbol, fence, car, pedestrian, bicyclist"
    )
    colours = dict(zip(listing.classes, listing.colours, strict=True))
    assert (colours["road"], colours["car"], colours["bicyclist"]) == ((128, 64, 128), (64, 0, 128), (0, 128, 192))


def test_void_is_ignored(root):
    """11 is, and so is 255 in copies that write it; 0 to 10 are themselves."""
    listing = list_camvid(root)
    labels = listing.read_labels(listing.train[0])
    assert labels.dtype == np.uint8
    assert labels.shape == (4, 6)
    assert labels.reshape(-1)[:12].tolist() == [*range(11), IGNORE]
    Image.fromarray(np.array([[3, 255]], np.uint8)).save(root / "trainannot" / "0001TP_01.png")
    assert listing.read_labels(listing.train[0]).tolist() == [[3, IGNORE]]


def test_palette_masks_are_numbers(root):
    """Copies with coloured palettes hold the same indices."""
    mask = Image.fromarray(np.array([[0, 10, 11]], np.uint8), mode="P")
    mask.putpalette([number % 256 for number in range(768)])
    mask.save(root / "valannot" / "0016E5_2.png")
    listing = list_camvid(root)
    assert listing.read_labels(listing.val[0]).tolist() == [[0, 10, IGNORE]]


@pytest.mark.parametrize(
    ("pixels", "reason"),
    [
        (np.array([[0, 1], [12, 0]], np.uint8), "the number 12 at row 1, column 0"),
        (np.array([[[64, 0, 128]]], np.uint8), "has colours"),
    ],
)
def test_other_labels_are_refused_with_the_way_out(root, pixels, reason):
    """The 32 classes of the first release, as numbers or as colours, are not taken for the 11."""
    listing = list_camvid(root)
    Image.fromarray(pixels).save(root / "valannot" / "0016E5_2.png")
    with pytest.raises(UserError, match=reason) as error:
        listing.read_labels(listing.val[0])
    assert str(root / "valannot" / "0016E5_2.png") in str(error.value)
    assert "0 to 10" in str(error.value)


def test_a_test_split_is_listed_where_it_is_there(root):
    """Images alone are none: they could not be evaluated."""
    add(root, "test", "0001TP_9.png")
    assert names(list_camvid(root).test) == ["test/0001TP_9.png"]
    (root / "testannot" / "0001TP_9.png").unlink()
    assert f"{root / 'testannot' / '0001TP_9.png'}: no such file" in refusal(root)
    (root / "testannot").rmdir()
    assert list_camvid(root).test == ()


def test_further_images_come_last(root):
    """Without labels, and named by where they are; a folder that has masks among its images is none of images."""
    add(root, "sequences", "0005VD.png")
    official = list_camvid(root)
    listing = with_further_images(official, root / "sequences")
    assert names(listing.train)[2:] == ["sequences/0005VD.png"]
    assert listing.train[2].mask is None
    assert names(with_further_images(official, root / "val").train) == names(official.train)
    with pytest.raises(UserError, match="has masks in it"):
        with_further_images(official, root)


def test_a_drive_is_held_out(root):
    """Its frames validate, from whichever official split they are, and all others train; test stays as it is."""
    for split, file in (("train", "0016E5_1.png"), ("val", "0006R0_f02.png"), ("test", "0006R0_f03.png")):
        add(root, split, file)
    listing = list_camvid(root, holdout_drive="0006R0")
    assert names(listing.val) == ["train/0006R0_f01.png", "val/0006R0_f02.png"]
    assert names(listing.train) == ["train/0001TP_01.jpg", "train/0016E5_1.png", "val/0016E5_2.png"]
    assert names(listing.test) == ["test/0006R0_f03.png"]
    assert [item.mask for item in listing.val] == [
        root / "trainannot" / "0006R0_f01.png",
        root / "valannot" / "0006R0_f02.png",
    ]
    add(root, "more", "0006R0_f09.png")
    further = with_further_images(listing, root / "more")
    assert names(further.train) == [*names(listing.train), "more/0006R0_f09.png"]


def test_each_drive_is_decoded_apart(root, tmp_path):
    """Every choice of a drive has a place of its own in the cache, and the official split has that of before drives."""
    folders = set()
    for drive in (None, "0001TP", "0006R0", "0016E5"):
        settings = Data(name="camvid", path=root, holdout_drive=drive, cache=tmp_path / "cache")
        listing = list_files(settings)
        cache = Cache(listing, settings, QUIET)
        folders |= {cache.folder("train"), cache.folder("val")}
        held_out = load(settings).read("val").names
        assert set(held_out) == set(names(listing.val))
        assert not set(held_out) & set(load(settings).read("train").names)
    assert len(folders) == 8
    assert list_files(Data(name="camvid", path=root)).selection == {"train": (None,)}


def test_labels_are_drawn_from_the_drives_that_train(root, tmp_path):
    """As many as asked for, none of the held-out drive; all that train serve without labels."""
    for number in range(6):
        add(root, "train", f"0001TP_{number + 10}.png")
    settings = Data(name="camvid", path=root, holdout_drive="0006R0", cache=tmp_path / "cache")
    samples = load(settings).read("train")
    split = choose(samples, "4", seed=1)
    assert len(split.labelled) == 4
    assert len(split.unlabelled) == 8
    assert not [name for name in split.unlabelled if "0006R0" in name]


def test_a_drive_that_is_not_there_is_answered_with_those_that_are(root, tmp_path):
    """With their numbers of frames; a part of a name is none; of a single drive nothing can be held out."""
    for drive in ("0006R1", "0006", ""):
        assert "0001TP (1), 0006R0 (1), 0016E5 (1)" in refusal(root, drive)
    for split in ("train", "val"):
        add(tmp_path / "one", split, f"0001TP_{split}.png")
    assert "nothing would be left to train on" in refusal(tmp_path / "one", "0001TP")
    with pytest.raises(UserError, match="holdout_drive is for the drives of CamVid, and the data are folder"):
        configured("folder", {"data": {"holdout_drive": "0006R0"}}, source="test")


def test_what_is_missing_is_named(root, tmp_path):
    """No folder given, none there, none inside, a mask, and a mask that two images would share."""
    assert "--data DIR" in refusal(None)
    assert f"{tmp_path / 'none'}: no such folder" in refusal(tmp_path / "none")
    message = refusal(tmp_path)
    assert f"{tmp_path / 'train'}/NAME.png" in message
    assert f"{tmp_path / 'trainannot'}/NAME.png" in message
    add(root, "train", "0001TP_01.png")
    assert "2 images called 0001TP_01" in refusal(root)
    (root / "train" / "0001TP_01.png").unlink()
    (root / "valannot" / "0016E5_2.png").unlink()
    assert f"{root / 'valannot' / '0016E5_2.png'}: no such file" in refusal(root)
