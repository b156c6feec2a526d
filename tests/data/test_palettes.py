"""Palettes that differ from mask to mask: colours are the classes where they are steady, and else nothing is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.folders import SCENE, listing, photo, refusal, write
from oneway.common.terms import IGNORE
from oneway.data.dataset import Colour

BLACK, WHITE, RED, GREEN, BLUE = (0, 0, 0), (255, 255, 255), (200, 0, 0), (0, 200, 0), (0, 0, 200)
PURPLE = (200, 0, 200)


def painted(root: Path, *palettes: dict[int, Colour], scene: np.ndarray = SCENE) -> Path:
    """A mask for each palette: its indices, in their order, for what is 0, 1 and so on in the scene."""
    for number, palette in enumerate(palettes):
        photo(root / "images" / f"{number}.jpg", number)
        entries = np.full((256, 3), 7 + number, np.uint8)  # what no pixel has differs from mask to mask, too
        entries[[*palette]] = [*palette.values()]
        picture = Image.fromarray(np.array([*palette], np.uint8)[scene], "P")
        picture.putpalette(entries.tobytes())
        (root / "masks").mkdir(exist_ok=True)
        picture.save(root / "masks" / f"{number}.png")
    return root


def read(found) -> list[np.ndarray]:
    """Label maps in the order of the masks."""
    return [found.read_labels(item) for item in sorted((*found.train, *found.val), key=lambda item: item.name)]


ORDERS = ({0: BLACK, 1: RED, 2: BLUE}, {2: BLACK, 0: RED, 1: BLUE}, {1: BLACK, 2: RED, 0: BLUE})


def test_colours_that_indices_move_among_are_the_classes(tmp_path):
    """A class is the same in all masks; what was decided names two of them, and is saved so."""
    found = listing(painted(tmp_path, *ORDERS))
    assert found.classes == ("colour 000000", "colour 0000c8", "colour c80000")
    assert found.colours == (BLACK, BLUE, RED)
    expected = np.array([0, 2, 1])[SCENE]
    assert all(np.array_equal(labels, expected) for labels in read(found))
    (remark,) = [one for one in found.remarks if "number them differently" in one]
    assert "index 0 is [0, 0, 0] in the palette of" in remark
    assert "0.png and [200, 0, 0] in that of" in remark


def test_black_and_white_are_background_and_foreground(tmp_path):
    found = listing(painted(tmp_path, {0: BLACK, 1: WHITE}, {1: BLACK, 0: WHITE}, scene=SCENE % 2))
    assert found.classes == ("background", "foreground")
    assert all(np.array_equal(labels, SCENE % 2) for labels in read(found))


def test_palettes_that_differ_where_no_pixel_is_are_alike(tmp_path):
    """So are those whose colours are nearly the same."""
    nearly = (0, 3, 2)
    assert listing(painted(tmp_path / "a", ORDERS[0], ORDERS[0])).classes == ("class 0", "class 1", "class 2")
    found = listing(painted(tmp_path / "b", ORDERS[0], ORDERS[0] | {0: nearly}))
    assert found.classes == ("class 0", "class 1", "class 2")


def test_255_is_ignored_if_it_is_one_colour(tmp_path):
    found = listing(painted(tmp_path, *({**dict([*order.items()][:2]), 255: WHITE} for order in ORDERS)))
    assert found.classes == ("colour 000000", "colour c80000")
    assert all(np.array_equal(labels, np.array([0, 1, IGNORE])[SCENE]) for labels in read(found))


@pytest.mark.parametrize(
    "palettes",
    [
        (ORDERS[0], {0: BLACK, 1: GREEN, 2: PURPLE}),  # two programs may show the same classes so
        (ORDERS[0], {1: BLACK, 0: RED, 2: RED}),  # one colour for two indices
        (ORDERS[0], {1: BLACK, 0: (190, 0, 0), 2: BLUE}),  # a third red
    ],
)
def test_what_is_not_known_is_refused_with_both_ways_out(tmp_path, palettes):
    root = painted(tmp_path, *palettes)
    said = refusal(root)
    assert "Palettes differ from mask to mask: index " in said
    assert str(root / "masks" / "0.png") in said
    assert str(root / "masks" / "1.png") in said
    assert "classes: {first: [" in said
    assert "classes: [background, …]" in said


def test_a_grey_mask_among_them_leaves_nothing_known(tmp_path):
    """And names of classes without colours do not tell which is which."""
    root = painted(tmp_path, *ORDERS)
    write(root / "classes.txt", "ground\nroad\ncar\n")
    assert "Palettes differ" in refusal(root)
    (root / "classes.txt").unlink()
    Image.fromarray(SCENE).save(root / "masks" / "0.png")
    assert "Palettes differ" in refusal(root)


def test_a_table_of_their_colours_is_read(tmp_path):
    write(painted(tmp_path, *ORDERS) / "classes.txt", "ground 0,0,0\nroad 200,0,0\ncar 0,0,200\n")
    found = listing(tmp_path)
    assert found.classes == ("ground", "road", "car")
    assert all(np.array_equal(labels, SCENE) for labels in read(found))


@pytest.mark.parametrize(
    ("classes", "warned"),
    [
        ("[a, b, c]", True),
        ("{0-2: one}", False),
        ("{ground: [0, 0, 0], road: [200, 0, 0], car: [0, 0, 200]}", False),
    ],
)
def test_indices_that_are_described_hold_and_are_doubted(tmp_path, classes, warned):
    """Where several are one class, their colours may be any."""
    write(painted(tmp_path, *ORDERS) / "dataset.yaml", f"classes: {classes}\n")
    found = listing(tmp_path)
    assert [heading for heading, _ in found.warnings] == ["Palettes that differ from mask to mask"] * warned
    if warned:
        assert [labels[0, 0] for labels in read(found)] == [0, 2, 1]
        assert "0.png and [200, 0, 0] in that of" in found.warnings[0][1]
