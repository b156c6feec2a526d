"""Classes are inferred from masks: numbers, palettes, colours, black and white, tables of other tools."""

from __future__ import annotations

import os
import re
import time

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from data.folders import PALETTE, SCENE, coco, listing, mask, pairs, photo, refusal, write
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.check import apply_rules
from oneway.data.check.survey import survey_all
from oneway.data.dataset import Known
from oneway.data.folder import describe, mask_summary
from oneway.data.folder.yaml_text import to_yaml


def test_all_kinds_of_masks_of_one_scene_give_the_same_label_map(tmp_path):
    """Numbers, palette, colours and COCO, to the pixel; and a binary one gives what is 255 in it."""
    for kind in ("L", "P", "RGB"):
        pairs(tmp_path / kind, 2, kind=kind)
    write(
        tmp_path / "RGB" / "labelmap.txt", "# label:color_rgb:parts:actions\na:0,0,0::\nb:128,64,128::\nc:0,0,142::\n"
    )
    for index in range(2):
        photo(tmp_path / "coco" / "images" / f"{index}.jpg")
    coco(tmp_path / "coco" / "annotations" / "instances.json", ["0.jpg", "1.jpg"])
    for kind in ("L", "P", "RGB", "coco"):
        found = listing(tmp_path / kind)
        assert len(found.classes) == 3
        for item in (*found.train, *found.val):
            assert np.array_equal(found.read_labels(item), SCENE), kind
    binary = listing(pairs(tmp_path / "binary", 2, np.where(SCENE == 1, 255, 0)))
    assert np.array_equal(binary.read_labels(binary.val[0]), SCENE == 1)


def test_numbers_are_inferred_up_to_the_largest(tmp_path):
    """0 to 2, and 255 ignored."""
    found = listing(pairs(tmp_path / "a", values=np.where(SCENE == 1, 255, SCENE)))
    assert found.classes == ("class 0", "class 1", "class 2")
    assert (found.read_labels(found.val[0]) == IGNORE).sum() == 15
    one_off = listing(pairs(tmp_path / "b", values=SCENE + 1))
    assert one_off.classes == ("class 0", "class 1", "class 2", "class 3")


def test_palette_masks_bring_their_colours_and_only_what_occurs(tmp_path):
    """Indices 0 and 2, whose colours are those of the palette."""
    found = listing(pairs(tmp_path, values=np.where(SCENE == 1, 255, SCENE), kind="P"))
    assert found.classes == ("class 0", "class 2")
    assert found.colours == (PALETTE[0], PALETTE[2])
    assert sorted(np.unique(found.read_labels(found.val[0]))) == [0, 1, IGNORE]


def test_black_and_white_is_background_and_foreground(tmp_path):
    """Stored as 0 and 255, or in one bit, or some so and some so."""
    pairs(tmp_path, 2, np.where(SCENE == 1, 255, 0))
    for index in range(2, 4):
        photo(tmp_path / "images" / f"{index}.jpg")
        Image.fromarray(SCENE == 1).save(tmp_path / "masks" / f"{index}.png")
    found = listing(tmp_path)
    assert found.classes == ("background", "foreground")
    assert all(np.array_equal(found.read_labels(item), SCENE == 1) for item in (*found.train, *found.val))


@pytest.mark.parametrize("kind", ["L", "P"])
def test_zero_and_one_are_background_and_foreground_too(tmp_path, kind):
    """Under the names that 0 and 255 have; in their colours as well, unless a palette brings others."""
    found = listing(pairs(tmp_path / "one", values=SCENE == 1, kind=kind))
    white = listing(pairs(tmp_path / "white", values=np.where(SCENE == 1, 255, 0)))
    assert found.classes == white.classes == ("background", "foreground")
    assert found.colours == (PALETTE[:2] if kind == "P" else white.colours)
    assert np.array_equal(found.read_labels(found.val[0]), SCENE == 1)
    assert "Masks hold 0 and 1: taken for background and foreground." in found.remarks


def test_a_colour_that_hardly_occurs_is_marked_in_the_proposal(tmp_path):
    """One pixel of 60,000, in one mask; not one in each of two masks, nor a hundred in one."""
    colours = np.array([*PALETTE, (1, 2, 3), (4, 5, 6)], np.uint8)
    (tmp_path / "masks").mkdir()
    for index in range(4):
        values = np.zeros((100, 150), np.uint8)
        values[:50], values[99, 99], values[99, 0] = 1, 3 * (index == 1), 4 * (index > 1)
        values[60:70, :10] = 2 * (index == 0)
        photo(tmp_path / "images" / f"{index}.jpg", index, values.shape)
        Image.fromarray(colours[values]).save(tmp_path / "masks" / f"{index}.png")
    proposal = to_yaml(describe(tmp_path).description)
    (marked,) = (line for line in proposal.splitlines() if "a stray?" in line)
    assert "[1, 2, 3]" in marked
    write(tmp_path / "dataset.yaml", proposal)
    assert len(listing(tmp_path).classes) == 5


def test_colours_without_a_table_are_shown_and_proposed(tmp_path):
    """Training is refused with the colours; the proposal, saved, makes a data set."""
    pairs(tmp_path, kind="RGB")
    message = refusal(tmp_path)
    assert "[0, 0, 0], [0, 0, 142] and [128, 64, 128]" in message
    assert "`oneway check --save` writes a dataset.yaml" in message
    proposal = describe(tmp_path).description
    assert proposal.names == ("class 0", "class 1", "class 2")
    write(tmp_path / "dataset.yaml", to_yaml(proposal))
    found = listing(tmp_path)
    assert np.array_equal(found.read_labels(found.val[0]), np.array([0, 2, 1])[SCENE])


def test_cvat_tables_name_the_colours(tmp_path):
    """Its background is a class like any other; a palette in these colours is looked up too."""
    table = "# label:color_rgb:parts:actions\ncar:0,0,142::\nbackground:0,0,0::\nroad:128,64,128::\n"
    for kind in ("RGB", "P"):
        root = pairs(tmp_path / kind, kind=kind)
        write(root / "labelmap.txt", table)
        found = listing(root)
        assert found.classes == ("car", "background", "road")
        assert np.array_equal(found.read_labels(found.val[0]), np.array([1, 2, 0])[SCENE])
    root = pairs(tmp_path / "L")
    write(root / "labelmap.txt", table)
    assert listing(root).classes == ("car", "background", "road")
    write(root / "labelmap.txt", "road:128,64,128::\ncar;1;2")
    assert "labelmap.txt: not a table" in refusal(root)
    (root / "labelmap.txt").write_bytes("Tür:0,0,0::\nWand:128,64,128::\n".encode("cp1252"))
    assert "Save it as UTF-8" in refusal(root)


def test_photographs_are_no_masks(tmp_path):
    """Hundreds of colours, or thousands of numbers, make no classes."""
    rng = np.random.default_rng(0)
    pairs(tmp_path)
    for index in range(4):
        Image.fromarray(rng.integers(256, size=(40, 40, 3), dtype=np.uint8)).save(tmp_path / "masks" / f"{index}.png")
    assert "more than 255 colours" in refusal(tmp_path)
    for index in range(4):
        Image.fromarray(rng.integers(2**16, size=(40, 40), dtype=np.uint16)).save(tmp_path / "masks" / f"{index}.png")
    assert "are photographs" in refusal(tmp_path)


def test_one_bad_mask_does_not_spoil_the_inference(tmp_path):
    """Of another kind or damaged: the classes are those of the others, and reading it names it."""
    pairs(tmp_path, 5)
    bad = [mask(tmp_path / "masks" / "0.png", kind="RGB"), write(tmp_path / "masks" / "1.png", "no image")]
    found = listing(tmp_path)
    assert len(found.classes) == 3
    for path in bad:
        item = next(item for item in (*found.train, *found.val) if item.mask == path)
        with pytest.raises(UserError, match=path.name):
            found.read_labels(item)


def soft(path, radius: float = 1) -> None:
    """A black and white mask as image editors save it: its border has been smoothed."""
    hard = Image.new("L", (80, 60))
    ImageDraw.Draw(hard).ellipse((15, 10, 60, 45), fill=255)
    ImageDraw.Draw(hard).rectangle((5, 48, 30, 56), fill=255)
    path.parent.mkdir(parents=True, exist_ok=True)
    hard.filter(ImageFilter.GaussianBlur(radius)).save(path)


@pytest.mark.parametrize("radius", [0.5, 1, 2, 5])
def test_smoothed_borders_are_refused(tmp_path, radius):
    """They hold shades that nobody painted: no classes, and the way out is named."""
    for index in range(4):
        photo(tmp_path / "images" / f"{index}.jpg", index, (60, 80))
        soft(tmp_path / "masks" / f"{index}.png", radius)
    message = refusal(tmp_path)
    assert "masks/0.png: holds 0, " in message
    assert "smoothed borders" in message
    assert "without smoothing" in message


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_shades_of_black_and_white_are_read_as_the_refusal_says(tmp_path, suffix):
    """The line it names takes every shade for the nearer of the two, of smoothed masks and of those in JPEG."""
    for index in range(4):
        photo(tmp_path / "images" / f"{index}.jpg", index, (60, 80))
        soft(tmp_path / "masks" / f"{index}.{suffix}")
    line = re.search("`(classes: [^`]+)`", refusal(tmp_path))
    write(tmp_path / "dataset.yaml", line[1])
    found = listing(tmp_path)
    assert found.classes == ("background", "foreground")
    shades = np.asarray(Image.open(found.val[0].mask))
    assert len(np.unique(shades)) > 10
    assert np.array_equal(found.read_labels(found.val[0]), shades > 127)


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ((0, 128, 255), ("class 0", "class 128", "class 255")),
        ((0, 100, 200), ("class 0", "class 100", "class 200")),
        ((0, 85, 255), ("class 0", "class 85", "class 255")),
        ((0, 15, 255), ("class 0", "class 15")),
        ((7, 26, 33), ("class 7", "class 26", "class 33")),
        ((0, 1, 255), ("background", "foreground")),
    ],
)
def test_numbers_far_apart_are_classes_of_their_own(tmp_path, values, classes):
    """Nothing is filled in between; 255 is ignored only where it is set apart from small numbers, and that is said."""
    found = listing(pairs(tmp_path, values=np.array(values, np.uint8)[SCENE]))
    assert found.classes == classes
    labels = found.read_labels(found.val[0])
    ignored = len(classes) < len(values)
    assert np.array_equal(labels, np.array([0, 1, IGNORE if ignored else 2])[SCENE])
    assert any("255 as well, in 12.5 %" in remark for remark in found.remarks) == ignored


def test_stray_pixels_do_not_make_the_foreground_ignored(tmp_path):
    """Black and white, and one pixel of 1: the only area beside the background is 255."""
    values = np.where(SCENE == 1, 255, 0)
    values[5, 7] = 1
    found = listing(pairs(tmp_path, values=values))
    assert found.classes == ("class 0", "class 1", "class 255")
    assert (found.read_labels(found.val[0]) == 2).sum() == (SCENE == 1).sum()


def test_proposed_classes_of_numbers_far_apart_are_read_alike(tmp_path):
    """What `check --save` writes means what was inferred."""
    root = pairs(tmp_path, values=np.array((0, 128, 255), np.uint8)[SCENE])
    write(root / "dataset.yaml", to_yaml(describe(root).description))
    found = listing(root)
    assert np.array_equal(found.read_labels(found.val[0]), SCENE)


def test_classes_of_thin_things_are_no_smoothed_borders(tmp_path):
    """Lines one pixel wide fill no area, and count up from 0."""
    lines = np.zeros((20, 20), np.uint8)
    lines[2::6], lines[4::6], lines[:, 7] = 1, 2, 3
    for index in range(2):
        photo(tmp_path / "images" / f"{index}.jpg", index, lines.shape)
        mask(tmp_path / "masks" / f"{index}.png", lines)
    assert len(listing(tmp_path).classes) == 4


def test_many_numbers_with_gaps_are_refused(tmp_path):
    """As of instances; where most of them occur, what is missing in between is a class that a finding names."""
    steps = np.arange(40, dtype=np.uint8).repeat(4)[None].repeat(4, axis=0)
    for index in range(2):
        photo(tmp_path / "images" / f"{index}.jpg", index, steps.shape)
        mask(tmp_path / "masks" / f"{index}.png", steps * 5)
    assert "many numbers with gaps" in refusal(tmp_path)
    for index in range(2):
        photo(tmp_path / "images" / f"{index}.jpg", index, (4, 4 * 20))
        mask(tmp_path / "masks" / f"{index}.png", steps[..., : 4 * 20] // 2 * 2 + (steps[..., : 4 * 20] > 16))
    found = listing(tmp_path)
    absent = [one.message for one in apply_rules(found, survey_all(found, found.items, int)) if "never" in one.kind]
    assert absent[0].endswith(" of class 1, class 3, class 5, class 7, class 9, class 11, class 13, class 15 or 1 more")


def test_values_without_a_gap_are_said_by_the_first_and_the_last(tmp_path):
    """And others one by one, as far as they are shown."""
    values = np.arange(9).reshape(3, 3).repeat(4, 0).repeat(4, 1)
    assert "9 classes, from the values 0 to 8 of 4 masks" in listing(pairs(tmp_path / "a", 4, values)).remarks[0]
    gaps = np.where(values == 8, 9, values)
    assert (
        "from the values 0, 1, 2, 3, 4, 5, 6, 7 and 1 more of 4 masks"
        in listing(pairs(tmp_path / "b", 4, gaps)).remarks[0]
    )
    assert describe(pairs(tmp_path / "c", 1, values)).inferred.remarks[0].endswith("0 to 8 of 1 mask")


def numbered(root, counts, size=1):
    """Masks in which so many numbers each fill squares, `size` of them."""
    for index, count in enumerate(counts):
        values = np.zeros((12 * size, 60), np.uint8)
        for number in range(count):
            for row in range(size):
                values[12 * row + 2 : 12 * row + 9, 5 * number : 5 * number + 4] = number + 1
        photo(root / "images" / f"{index}.png", size=values.shape)
        mask(root / "masks" / f"{index}.png", values)
    return root


def test_numbers_of_objects_are_no_classes(tmp_path):
    """They are refused, and the line that is given makes them one class."""
    root = numbered(tmp_path, (5, 9, 12, 7))
    line = "classes: {0: background, 1-255: object}"
    assert f"`{line}`" in refusal(root)
    write(root / "dataset.yaml", line)
    found = listing(root)
    assert found.classes == ("background", "object")
    assert np.unique(found.read_labels(found.train[0])).tolist() == [0, 1]


@pytest.mark.parametrize(("counts", "size"), [((9, 9, 9, 9), 1), ((9, 9, 8, 9), 1), ((5, 9, 12, 7), 2), ((2, 4, 5), 1)])
def test_classes_in_one_piece_are_classes(tmp_path, counts, size):
    """The same in every mask, or nearly; those in two pieces; and few of them."""
    assert len(listing(numbered(tmp_path, counts, size)).classes) == max(counts) + 1


@pytest.mark.parametrize(("counts", "warned"), [((1, 3, 2, 5), True), ((3, 3, 2, 3), False), ((1, 2, 1, 2), False)])
def test_few_numbers_that_may_be_those_of_objects_are_warned_of(tmp_path, counts, warned):
    """They are classes all the same; the line that is given makes them one."""
    root = numbered(tmp_path, counts)
    lines = [
        message for heading, message in listing(root).warnings if heading == "Numbers that may be those of objects"
    ]
    assert len(lines) == warned
    if warned:
        write(root / "dataset.yaml", re.search("`(classes: [^`]+)`", lines[0])[1])
        assert listing(root).classes == ("background", "object")
        assert not listing(root).warnings


def test_black_and_white_in_16_bits(tmp_path):
    """0 and 65535 are background and foreground, as 0 and 255 are; a run that called them otherwise keeps its names."""
    pairs(tmp_path)
    for index in range(4):
        white = np.where(SCENE > 0, 65535, 0).astype(np.uint16)
        Image.fromarray(white).save(tmp_path / "masks" / f"{index}.png")
    found = listing(tmp_path)
    assert found.classes == ("background", "foreground")
    assert np.array_equal(found.read_labels(found.train[0]), SCENE > 0)
    assert describe(tmp_path, known=Known(classes=("class 0", "class 65535"))).description.names == (
        "class 0",
        "class 65535",
    )


def test_a_mask_is_read_once_for_its_classes_as_long_as_it_stays_the_same(tmp_path, monkeypatch):
    """Training lists a folder, and so does the report after it; what was just written may be written again unseen."""
    pairs(tmp_path, 3)
    masks = sorted((tmp_path / "masks").iterdir())
    read, usual = [], mask_summary.read_raw
    monkeypatch.setattr(mask_summary, "read_raw", lambda path: read.append(path) or usual(path))
    for path in masks[1:]:
        os.utime(path, ns=(0, time.time_ns() - 10**10))
    for _ in range(2):
        assert len(describe(tmp_path).description.classes.names) == 3
    assert sorted(read) == sorted([masks[0], *masks])
    mask(masks[2], np.full_like(SCENE, 3))
    os.utime(masks[2], ns=(0, time.time_ns() - 10**10))
    read.clear()
    assert len(describe(tmp_path).description.classes.names) == 4
    assert sorted(read) == [masks[0], masks[2]]
