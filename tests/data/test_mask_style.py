"""Predictions are stored as the masks were that a model learnt from, and read back as the same labels."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from data.folders import PALETTE, SCENE, listing, mask, pairs, photo, refusal, write
from oneway.common.terms import IGNORE
from oneway.data.check import check_data
from oneway.data.dataset import Item
from small_runs import QUIET

NUMBERS = np.array([0, 7, 15], np.uint8)
YAML = {
    "numbers": "classes: {0: sky, 7: road, 15: car}",
    "colours": "classes: {sky: [0, 0, 0], road: [128, 64, 128], car: [0, 0, 142]}",
    "indices": "classes: [sky, road, car]",
    "merged": "classes: {0: sky, 7: road, 9: road, 15: car}",
    "large": "classes: {0: sky, 700: road, 1500: car}",
}


def folder(root, kind: str):
    """A folder whose masks are of one kind; its listing."""
    match kind:
        case "black and white":
            pairs(root, values=255 * (SCENE > 0).astype(np.uint8))
        case "one bit":
            pairs(root)
            for path in (root / "masks").iterdir():
                Image.fromarray(SCENE > 0).save(path)
        case "scattered":
            pairs(root, values=NUMBERS[SCENE])
        case "palette":
            pairs(root, kind="P")
        case "sparse palette":
            pairs(root, values=NUMBERS[SCENE], kind="P")
        case "three equal channels":
            pairs(root)
            for path in (root / "masks").iterdir():
                Image.fromarray(np.stack([NUMBERS[SCENE]] * 3, axis=2)).save(path)
        case "numbers" | "merged":
            pairs(root, values=NUMBERS[SCENE])
            write(root / "dataset.yaml", YAML[kind])
        case "large":
            pairs(root)
            for path in (root / "masks").iterdir():
                Image.fromarray(np.array([0, 700, 1500], np.uint16)[SCENE]).save(path)
            write(root / "dataset.yaml", YAML[kind])
        case "colours":
            pairs(root, kind="RGB")
            write(root / "dataset.yaml", YAML[kind])
        case "palette in colours":
            pairs(root, kind="P")
            write(root / "dataset.yaml", YAML["colours"])
        case "indices":
            pairs(root)
            write(root / "dataset.yaml", YAML[kind])
    return listing(root)


KINDS = ("black and white", "one bit", "scattered", "palette", "sparse palette", "three equal channels", "numbers")
MORE_KINDS = ("merged", "large", "colours", "palette in colours", "indices")


@pytest.mark.parametrize("kind", [*KINDS, *MORE_KINDS])
def test_what_is_written_back_is_read_as_the_same_labels(tmp_path, kind):
    """A predicted mask among the others has the same labels, and leaves theirs, and all findings, as they were."""
    before = folder(tmp_path, kind)
    labels = before.read_labels(before.train[0])
    assert before.masks is not None
    turned = np.ascontiguousarray(labels[::-1])
    path = tmp_path / "masks" / "new.png"
    before.masks.picture(turned).save(path)
    photo(tmp_path / "images" / "new.jpg", 99)
    after = listing(tmp_path)
    assert after.classes == before.classes
    assert np.array_equal(after.read_labels(Item("new", tmp_path / "images" / "new.jpg", path)), turned)
    assert np.array_equal(after.read_labels(before.train[0]), labels)
    assert after.masks == before.masks
    assert not errors(after)
    first, new = Image.open(before.train[0].mask), Image.open(path)
    assert (new.mode, new.getpalette()) == (first.mode, first.getpalette()) or kind == "one bit"


def errors(found):
    """What check refuses about masks; the photographs are alike."""
    return [
        finding for finding in check_data(found, QUIET).findings if "ask" in finding.kind if finding.level == "error"
    ]


def test_the_colours_of_the_palette_are_those_of_the_masks(tmp_path):
    """Index 1 is shown as it was."""
    style = folder(tmp_path, "palette").masks
    assert style.mode == "P"
    assert style.palette[:3] == PALETTE


def test_black_and_white_among_zeros_and_ones(tmp_path):
    """Hand-drawn foreground would be ignored: refused, with files of each."""
    pairs(tmp_path, 4, 255 * (SCENE > 0).astype(np.uint8))
    assert len(listing(tmp_path).classes) == 2
    mask(tmp_path / "masks" / "3.png", (SCENE > 0).astype(np.uint8))
    told = refusal(tmp_path)
    assert "3.png hold 0 and 1" in told
    assert "0.png" in told.split("hold 0 and 1")[1]
    assert "hold 0 and 255" in told


def test_black_and_white_among_zeros_and_ones_where_a_description_says_ones(tmp_path):
    """255 is ignored by default, and check refuses what that would lose; a mask with both shows that it is meant."""
    pairs(tmp_path, 4, (SCENE > 0).astype(np.uint8))
    write(tmp_path / "dataset.yaml", "classes: [background, crack]")
    mask(tmp_path / "masks" / "3.png", 255 * (SCENE > 0).astype(np.uint8))
    found = errors(listing(tmp_path))
    assert [finding.file for finding in found] == ["masks/3.png"]
    assert ".png does not" in found[0].message
    both = (SCENE > 0).astype(np.uint8)
    both[0] = IGNORE
    mask(tmp_path / "masks" / "2.png", both)
    assert not errors(listing(tmp_path))


@pytest.mark.parametrize(
    ("others", "kind", "told"),
    [
        (SCENE, "P", "have a palette, and 0, 1 and 2"),
        ((SCENE == 2) * np.uint8(2), "P", "have a palette, and 0 and 2"),
        (SCENE, "RGB", "are painted in colours"),
    ],
)
def test_class_indices_among_scattered_numbers(tmp_path, others, kind, told):
    """Of predictions of earlier versions, which have a palette: class 2 is no number 2."""
    pairs(tmp_path, 4, np.array([0, 2, 7], np.uint8)[SCENE])
    for name in ("2.png", "3.png"):
        mask(tmp_path / "masks" / name, others, kind)
    message = refusal(tmp_path)
    assert told in message
    assert "masks/0.png" in message
    assert "masks/3.png" in message


def test_palettes_among_colours(tmp_path):
    """Where a table has the colours of the palette, they mean the same; elsewhere both are named."""
    pairs(tmp_path, 4, kind="RGB")
    for name in ("2.png", "3.png"):
        mask(tmp_path / "masks" / name, kind="P")
    assert "are painted in colours, and" in refusal(tmp_path)
    write(tmp_path / "labelmap.txt", "sky:0,0,0::\nroad:128,64,128::\ncar:0,0,142::\n")
    found = listing(tmp_path)
    assert all(np.array_equal(found.read_labels(item), SCENE) for item in (*found.train, *found.val))
