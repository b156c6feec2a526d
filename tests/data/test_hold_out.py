"""Which images are held out: a plain draw by their names, unless it leaves a class on one side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.folders import SCENE, listing, mask, names, pairs, photo, write
from oneway.data.dataset import Item
from oneway.data.folder.hold_out import MOST_LOOKED_AT, hold_out, with_all_classes

ITEMS = [Item(f"{index:03}.png", Path(f"{index:03}.png")) for index in range(20)]


def draws(shown: dict[int, set[int]], items: list[Item] = ITEMS, seed: int = 0, groups: str | None = None):
    """The plain draw, and the one after a look at the classes; all images show 0, and some what is `shown`."""

    def read(item: Item) -> np.ndarray:
        return np.array([[0, *shown.get(int(item.name[:3]), ())]], np.uint8)

    plain = hold_out(items, 0.2, seed, groups)
    return plain, with_all_classes(plain, items, 0.2, seed, groups, read)


def numbers(items) -> set[int]:
    return {int(item.name[:3]) for item in items}


@pytest.mark.parametrize("seed", range(10))
def test_classes_of_two_images_are_on_both_sides(seed):
    """As many images are held out as before, and the same ones by the same seed."""
    shown = {0: {1}, 1: {1, 2}, 2: {2}, 3: {3}, 4: {3}, 5: {4}}  # 4 is in a single image
    plain, held = draws(shown, seed=seed)
    assert len(held) == len(plain) == 4
    held_out = numbers(held)
    for label in (1, 2, 3):
        members = {number for number in shown if label in shown[number]}
        assert members & held_out
        assert members - held_out
    assert draws(shown, seed=seed)[1] == held


@pytest.mark.parametrize("seed", range(10))
def test_a_draw_with_all_classes_on_both_sides_is_kept(seed):
    """Scores do not change."""
    plain, _ = draws({}, seed=seed)
    one, other = next(iter(numbers(plain))), next(iter(numbers(ITEMS) - numbers(plain)))
    plain, held = draws({one: {1}, other: {1}, 19: {255}}, seed=seed)
    assert held == plain


def test_what_no_draw_can_do_changes_none():
    """One image cannot show what four show, of two classes each."""
    items = ITEMS[:5]
    plain, held = draws({index: {index + 1, index + 2} for index in range(4)}, items)
    assert len(held) == len(plain) == 1
    plain, held = draws({0: {1}}, items)
    assert held == plain


def test_groups_stay_whole():
    """A class is on both sides where two groups show it."""
    items = [Item(f"{index:03}-{index // 4}.png", Path("x")) for index in range(20)]
    for seed in range(5):
        _, held = draws({0: {1}, 1: {1}, 9: {1}}, items, seed, "*-(*)")
        groups = {item.name[-5] for item in held}
        assert len({*groups} & {"0", "2"}) == 1
        assert len(held) == 4


def test_many_images_are_not_looked_at():
    """Nor are those whose labels cannot be read a reason to draw others."""
    many = [Item(f"{index:03}.png", Path("x")) for index in range(MOST_LOOKED_AT + 1)]
    plain = hold_out(many, 0.2, 0, None)
    assert with_all_classes(plain, many, 0.2, 0, None, pytest.fail) == plain


def test_masks_without_an_object_do_not_validate_alone(tmp_path):
    """Four of ten show the object; a broken mask leaves the plain draw."""
    for seed in range(5):
        root = pairs(tmp_path / str(seed), 10, np.zeros_like(SCENE))
        drawn = [item.name for item in listing(root, holdout=0.2, seed=seed).train if item.mask][:4]
        write(root / "dataset.yaml", "classes: [background, object]")
        for name in drawn:
            mask(root / "masks" / Path(name).with_suffix(".png").name, SCENE > 0)
        held = names(listing(root, holdout=0.2, seed=seed).val)
        assert len(held) == 2
        assert {*held} & {*drawn}
    photo(root / "images" / "x.jpg")
    write(root / "masks" / "x.png", "no mask")
    assert len(listing(root, holdout=0.2).val) == 2
