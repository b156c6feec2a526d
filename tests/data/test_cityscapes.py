"""Facts about listing and reading Cityscapes, on a few small files in its layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.dataset import Item, Listing
from oneway.data.published import with_further_images
from oneway.data.published.cityscapes import CLASSES, COLOURS, list_cityscapes

FINE = {"train": ("zurich_000001", "aachen_000000", "aachen_000003"), "val": ("munster_000000",)}
EXTRA = ("ulm_000000", "erlangen_000002")
OFFICIAL = """
    unlabeled 255, ego vehicle 255, rectification border 255, out of roi 255, static 255, dynamic 255, ground 255,
    road 0, sidewalk 1, parking 255, rail track 255, building 2, wall 3, fence 4, guard rail 255, bridge 255,
    tunnel 255, pole 5, polegroup 255, traffic light 6, traffic sign 7, vegetation 8, terrain 9, sky 10, person 11,
    rider 12, car 13, truck 14, bus 15, caravan 255, trailer 255, train 16, motorcycle 17, bicycle 18
"""
"""Label ids from 0 on, with train ids: the table of labels of the data set's own scripts."""


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def image_path(root: Path, split: str, name: str) -> Path:
    return root / "leftImg8bit" / split / name.split("_")[0] / f"{name}_leftImg8bit.png"


def mask_path(root: Path, kind: str, split: str, name: str, ending: str = "labelIds") -> Path:
    return root / kind / split / name.split("_")[0] / f"{name}_{kind}_{ending}.png"


@pytest.fixture
def root(tmp_path) -> Path:
    """Images of 4×8 pixels, with the files that come along in the archives."""
    root = tmp_path / "cityscapes"
    for split, kind, names in (
        ("train", "gtFine", FINE["train"]),
        ("val", "gtFine", FINE["val"]),
        ("train_extra", "gtCoarse", EXTRA),
    ):
        for name in names:
            save(image_path(root, split, name), np.zeros((4, 8, 3), np.uint8))
            save(mask_path(root, kind, split, name), np.full((4, 8), 7, np.uint8))
            save(mask_path(root, kind, split, name, "instanceIds"), np.full((4, 8), 26001, np.uint16))
            save(mask_path(root, kind, split, name, "color"), np.full((4, 8, 3), (128, 64, 128), np.uint8))
    image_path(root, "train", "aachen_000000").with_name("._aachen_000000_leftImg8bit.png").touch()  # a Mac was here
    return root


def names(items: tuple[Item, ...]) -> list[str]:
    return [item.name for item in items]


def refusal(*arguments: object, **options: object) -> str:
    with pytest.raises(UserError) as error:
        list_cityscapes(*arguments, **options)
    return str(error.value)


def test_classes_and_colours_are_the_official_ones():
    """Nineteen, in the order of the train ids; two colours as everybody knows them."""
    labels = [entry.strip().rpartition(" ")[::2] for entry in OFFICIAL.split(",")]
    assert tuple(name for name, train_id in labels if train_id != "255") == CLASSES
    colours = dict(zip(CLASSES, COLOURS, strict=True))
    assert len(set(COLOURS)) == 19
    assert (colours["road"], colours["car"]) == ((128, 64, 128), (0, 0, 142))


def test_the_official_layout_is_listed(root):
    """Names are paths below the folder, in order; each image has its own fine mask."""
    listing = list_cityscapes(root)
    assert names(listing.train) == [
        "leftImg8bit/train/aachen/aachen_000000_leftImg8bit.png",
        "leftImg8bit/train/aachen/aachen_000003_leftImg8bit.png",
        "leftImg8bit/train/zurich/zurich_000001_leftImg8bit.png",
    ]
    assert names(listing.val) == ["leftImg8bit/val/munster/munster_000000_leftImg8bit.png"]
    assert listing.train[2].image == image_path(root, "train", "zurich_000001")
    assert listing.train[2].mask == mask_path(root, "gtFine", "train", "zurich_000001")
    assert (listing.root, listing.test) == (root, ())


def test_half_resolution_is_a_reduction(root):
    """By two; full resolution is by none."""
    assert list_cityscapes(root, "half").reduction == 2
    assert list_cityscapes(root, "full").reduction == 1


def test_an_incomplete_set_is_remarked_on(root):
    """Three of 2,975 images train as well, but nobody should take their result for the paper's."""
    assert list_cityscapes(root).remarks == (
        "3 of the 2975 images of Cityscapes train are there.",
        "1 of the 500 images of Cityscapes val are there.",
    )


def labels_of(listing: Listing, ids: np.ndarray, ending: str = "labelIds") -> np.ndarray:
    """What is read from a mask of these ids."""
    path = mask_path(listing.root, "gtFine", "train", "aachen_000000", ending)
    path.unlink(missing_ok=True)
    save(path, ids)
    return listing.read_labels(Item("", path, path))


def test_label_ids_become_train_ids(root):
    """Each of the 34, as the table of the data set has it."""
    expected = [int(entry.rpartition(" ")[2]) for entry in OFFICIAL.split(",")]
    labels = labels_of(list_cityscapes(root), np.arange(34, dtype=np.uint8).reshape(2, 17))
    assert labels.dtype == np.uint8
    assert labels.reshape(-1).tolist() == expected


def test_train_ids_serve_where_label_ids_are_missing(root):
    """As converted copies have them; where both are there, label ids are read."""
    both, one = (mask_path(root, "gtFine", "train", name, "labelTrainIds") for name in FINE["train"][:2])
    for path in (both, one):
        save(path, np.zeros((4, 8), np.uint8))
    mask_path(root, "gtFine", "train", FINE["train"][1]).unlink()
    listing = list_cityscapes(root)
    assert listing.train[0].mask == one
    assert listing.train[2].mask == mask_path(root, "gtFine", "train", FINE["train"][0])
    ids = np.array([[*range(19), IGNORE]], np.uint8)
    assert np.array_equal(labels_of(listing, ids, "labelTrainIds"), ids)


@pytest.mark.parametrize(
    ("ids", "ending", "reasons"),
    [
        (np.array([[7, 34]], np.uint8), "labelIds", ["the number 34 at row 0, column 1", "0 to 33"]),
        (np.array([[7], [255]], np.uint8), "labelIds", ["the number 255 at row 1, column 0", "0 to 33"]),
        (np.array([[26001]], np.uint16), "labelIds", ["the number 26001"]),
        (np.array([[19]], np.uint8), "labelTrainIds", ["the number 19", "0 to 18, and 255"]),
        (np.array([[[128, 64, 128]]], np.uint8), "labelIds", ["has colours", "0 to 33"]),
    ],
)
def test_ids_that_mean_nothing_are_refused_with_their_place(root, ids, ending, reasons):
    """File, value, and what would be right."""
    with pytest.raises(UserError) as error:
        labels_of(list_cityscapes(root), ids, ending)
    for reason in (f"aachen_000000_gtFine_{ending}.png", *reasons):
        assert reason in str(error.value)


def test_a_damaged_mask_is_named(root):
    """Nothing but our own error comes out of a broken file."""
    listing = list_cityscapes(root)
    mask = listing.train[0].mask
    assert mask is not None
    mask.write_bytes(mask.read_bytes()[:40])
    with pytest.raises(UserError, match=mask.name):
        listing.read_labels(listing.train[0])


def test_coarse_images_come_without_labels_behind_the_fine_ones(root):
    """The paper's F_l, F_u ∪ C_u: their masks are not even looked for."""
    for mask in (root / "gtCoarse").rglob("*.png"):
        mask.unlink()
    listing = list_cityscapes(root, coarse="images")
    assert [item.mask is not None for item in listing.train] == [True] * 3 + [False] * 2
    assert names(listing.train)[3:] == [
        "leftImg8bit/train_extra/erlangen/erlangen_000002_leftImg8bit.png",
        "leftImg8bit/train_extra/ulm/ulm_000000_leftImg8bit.png",
    ]
    assert "2 of the 19998 images of Cityscapes train_extra are there." in listing.remarks


def test_coarse_labels_can_be_read(root):
    """The paper's F_l, C_l."""
    listing = list_cityscapes(root, coarse="labels")
    assert listing.train[4].mask == mask_path(root, "gtCoarse", "train_extra", "ulm_000000")
    assert (listing.read_labels(listing.train[4]) == 0).all()


def test_further_images_are_listed_last_and_none_twice(root, tmp_path):
    """From anywhere, at any depth; an image that trains or validates already is not added again."""
    outside = tmp_path / "drives"
    save(outside / "night" / "b.png", np.zeros((4, 8, 3), np.uint8))
    save(outside / "a.JPG", np.zeros((4, 8, 3), np.uint8))
    (outside / "notes.txt").touch()
    official = list_cityscapes(root)
    listing = with_further_images(official, outside)
    assert names(listing.train)[3:] == ["unlabelled/a.JPG", "unlabelled/night/b.png"]
    assert all(item.mask is None for item in listing.train[3:])
    inside = with_further_images(official, root / "leftImg8bit")
    assert names(inside.train)[3:] == names(list_cityscapes(root, coarse="images").train)[3:]
    (outside / "empty").mkdir()
    for folder, reason in (
        (tmp_path / "none", "no such folder"),
        (root, "has masks in it"),
        (outside / "empty", "no image"),
    ):
        with pytest.raises(UserError, match=reason):
            with_further_images(official, folder)


def test_what_is_missing_is_named_with_its_archive(root, tmp_path):
    """No folder given, none there, none inside, and each kind of file."""
    assert "--data DIR" in refusal(None)
    assert f"{tmp_path / 'none'}: no such folder" in refusal(tmp_path / "none")
    message = refusal(tmp_path)
    assert f"{tmp_path / 'leftImg8bit' / 'train'}/CITY/NAME_leftImg8bit.png" in message
    assert "leftImg8bit_trainvaltest.zip" in message

    mask_path(root, "gtCoarse", "train_extra", "ulm_000000").unlink()
    message = refusal(root, coarse="labels")
    assert f"{mask_path(root, 'gtCoarse', 'train_extra', 'ulm_000000')}: no such file" in message
    assert "gtCoarse.zip" in message

    image_path(root, "train_extra", "ulm_000000").unlink()
    image_path(root, "train_extra", "erlangen_000002").unlink()
    assert "leftImg8bit_trainextra.zip" in refusal(root, coarse="images")

    mask_path(root, "gtFine", "val", "munster_000000").unlink()
    message = refusal(root)
    assert f"{mask_path(root, 'gtFine', 'val', 'munster_000000')}: no such file" in message
    assert "munster_000000_gtFine_labelTrainIds.png" in message
    assert "gtFine_trainvaltest.zip" in message
