"""What masks hold besides their classes: a number that hardly occurs, and labels in alpha."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from data.folders import listing, photo, refusal, write
from oneway.config import Data
from oneway.data import list_files
from oneway.data.check import check_data
from oneway.data.folder.described import describe
from oneway.data.folder.yaml_text import to_yaml
from small_runs import QUIET

SHAPE = (120, 160)
THIRDS = np.repeat(np.arange(3, dtype=np.uint8), 40)[:, None] + np.zeros(SHAPE, np.uint8)


def saved(root, change=lambda index, values: Image.fromarray(values)):
    """Four masks of three classes, stored as something else."""
    (root / "masks").mkdir(parents=True)
    for index in range(4):
        photo(root / "images" / f"{index}.jpg", index, SHAPE)
        change(index, THIRDS.copy()).save(root / "masks" / f"{index}.png")
    return root


def stray(masks, pixels):
    def change(index, values):
        values[0, : pixels if index in masks else 0] = 7
        return Image.fromarray(values)

    return change


@pytest.mark.parametrize(("masks", "pixels", "doubted"), [((2,), 1, True), ((1, 2), 1, False), ((2,), 20, False)])
def test_a_number_that_hardly_occurs_is_doubted(tmp_path, masks, pixels, doubted):
    """In one mask, and below one in ten thousand pixels of all; the line that is proposed makes it no class."""
    root = saved(tmp_path, stray(masks, pixels))
    found = listing(root)
    assert len(found.classes) == 8
    assert len(found.warnings) == doubted
    assert ("# 7, hardly occurs, in a single mask: a stray?" in to_yaml(describe(root).description)) is doubted
    if doubted:
        assert f"7 ({root / 'masks' / '2.png'}): if it stands for no class" in found.warnings[0][1]
        write(root / "dataset.yaml", found.warnings[0][1].split("`")[1])
        found = listing(root)
        assert found.classes == ("class 0", "class 1", "class 2")
        assert not found.warnings


def in_alpha(colour):
    """One colour all over; alpha is the label."""

    def change(index, values):
        picture = np.full((*SHAPE, len(colour) + 1), (*colour, 0), np.uint8)
        picture[..., -1] = values * 127
        return Image.fromarray(picture)

    return change


@pytest.mark.parametrize("colour", [(255, 0, 0), (9,)])
@pytest.mark.parametrize("described", [True, False])
def test_labels_in_alpha_are_pointed_at(tmp_path, colour, described):
    """Where nothing else differs; the way out names the masks."""
    root = saved(tmp_path, in_alpha(colour))
    if described:
        value = list(colour) if len(colour) == 3 else None
        write(root / "dataset.yaml", f"classes: {{a: {value}}}" if value else "classes: {9: a}")
    if described or len(colour) == 1:
        config = Data(name="folder", path=root, cache=tmp_path / "cache")
        findings = check_data(list_files(config), QUIET).findings
        (said,) = [one.message for one in findings if one.kind.startswith("A single class")]
    else:
        said = refusal(root)
    assert f"alpha, which is not read, varies ({root / 'masks'}" in said
    assert f"`magick mogrify -alpha extract {root / 'masks' / '*.png'}`" in said


def test_alpha_beside_colours_is_none_of_it(tmp_path):
    """Masks with both are read as they were."""

    def change(index, values):
        picture = np.zeros((*SHAPE, 4), np.uint8)
        picture[..., 0] = values * 100
        picture[..., 3] = 255 - values
        return Image.fromarray(picture)

    root = saved(tmp_path, change)
    assert "nothing says which class" in refusal(root)
    write(root / "dataset.yaml", "classes: {a: [0, 0, 0], b: [100, 0, 0], c: [200, 0, 0]}")
    found = listing(root)
    assert np.array_equal(found.read_labels(found.val[0]), THIRDS)
