"""What `dataset.yaml` may forgive: masks of another size, and colours that are nearly right; nothing unasked."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from data.folders import SCENE, coco, listing, mask, pairs, photo, refusal, write
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.check.survey import decode_and_survey

COLOURS = "classes: {ground: [0, 0, 0], road: [128, 64, 128], car: [0, 0, 142]}\n"


@pytest.mark.parametrize("size", [(12, 16), (3, 4), (60, 80), (13, 17)])
def test_masks_are_given_the_size_of_their_image(tmp_path, size):
    """As Pillow does it with NEAREST."""
    for index in range(4):
        photo(tmp_path / "images" / f"{index}.jpg", index, size)
        mask(tmp_path / "masks" / f"{index}.png")
    write(tmp_path / "dataset.yaml", "classes: [a, b, c]\nresize_masks: nearest")
    found = listing(tmp_path)
    survey, _, labels = decode_and_survey(found, found.train[0])
    assert survey.problem is None
    expected = Image.fromarray(SCENE).resize(size[::-1], Image.Resampling.NEAREST)
    assert np.array_equal(labels, np.asarray(expected))
    assert any("get its size" in remark for remark in found.remarks)


def test_without_it_they_are_refused_with_the_way_out_and_turned_ones_always(tmp_path):
    """A mask that lies on its side is another mistake."""
    pairs(tmp_path)
    photo(tmp_path / "images" / "0.jpg", 0, (12, 16))
    photo(tmp_path / "images" / "1.jpg", 0, (8, 6))
    found = listing(tmp_path)
    items = {item.name: item for item in (*found.train, *found.val)}
    assert "resize_masks: nearest" in (decode_and_survey(found, items["images/0.jpg"])[0].problem or "")
    write(tmp_path / "dataset.yaml", "classes: [a, b, c]\nresize_masks: nearest")
    found = listing(tmp_path)
    assert "turned by 90°" in (decode_and_survey(found, items["images/1.jpg"])[0].problem or "")


def painted(tmp_path, change):
    """Masks in colours, of which some pixels of the first are changed."""
    pairs(tmp_path, 4, kind="RGB")
    for path in (tmp_path / "masks").iterdir():
        pixels = np.array(Image.open(path)).astype(int)
        Image.fromarray(np.clip(pixels + change, 0, 255).astype(np.uint8)).save(path)
    return tmp_path


@pytest.mark.parametrize(("apart", "tolerance", "known"), [(8, 8, True), (9, 8, False), (1, 0, False), (20, 20, True)])
def test_colours_within_the_tolerance_are_the_nearest_class(tmp_path, apart, tolerance, known):
    """Each channel may be so far off, and no further."""
    noise = np.random.default_rng(0).integers(-apart, apart + 1, (*SCENE.shape, 3))
    noise[1, 3] = (apart, -apart, apart)
    write(painted(tmp_path, noise) / "dataset.yaml", f"{COLOURS}colour_tolerance: {tolerance}")
    found = listing(tmp_path)
    if known:
        assert np.array_equal(found.read_labels(found.val[0]), SCENE)
    else:
        with pytest.raises(UserError, match="stands for no class"):
            found.read_labels(found.val[0])


@pytest.mark.parametrize(("apart", "advised"), [(2, 8), (12, 12), (60, None)])
def test_a_tolerance_is_advised_where_it_would_help(tmp_path, apart, advised):
    """A colour that is far from all known ones is no noise."""
    change = np.zeros((*SCENE.shape, 3), int)
    change[0, 0] = (0, apart, 0)
    write(painted(tmp_path, change) / "dataset.yaml", COLOURS)
    found = listing(tmp_path)
    with pytest.raises(UserError, match="nearest known colour is") as refused:
        found.read_labels(found.val[0])
    assert ("colour_tolerance" in str(refused.value)) is bool(advised)
    if advised:
        assert f"`colour_tolerance: {advised}` there" in str(refused.value)
        write(tmp_path / "dataset.yaml", f"{COLOURS}colour_tolerance: {advised}")
        found = listing(tmp_path)
        assert np.array_equal(found.read_labels(found.val[0]), SCENE)


def test_of_two_colours_within_reach_the_nearer_one_counts(tmp_path):
    mask(tmp_path / "masks" / "a.png")
    for name in "ab":
        photo(tmp_path / "images" / f"{name}.png")
        pixels = np.zeros((*SCENE.shape, 3), np.uint8)
        pixels[0, 0], pixels[0, 1], pixels[0, 2] = (4, 0, 0), (7, 0, 0), (99, 9, 9)
        Image.fromarray(pixels).save(tmp_path / "masks" / f"{name}.png")
    classes = "classes: {a: [0, 0, 0], b: [99, 9, 9]}\nignore: [[10, 0, 0]]\n"
    write(tmp_path / "dataset.yaml", f"{classes}colour_tolerance: 9")
    found = listing(tmp_path)
    assert found.read_labels(found.val[0])[0, :4].tolist() == [0, IGNORE, 1, 0]
    pixels[0, 0] = (5, 0, 0)  # as near to either
    Image.fromarray(pixels).save(found.val[0].mask)
    with pytest.raises(UserError, match=r"1 pixels have colour \[5, 0, 0\], which stands for no class"):
        found.read_labels(found.val[0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("classes: [a, b, c]\ncolour_tolerance: 8", "masks are made of numbers"),
        (f"{COLOURS}colour_tolerance: 99", "colour_tolerance: Input should be less than or equal to 64"),
        (
            "classes: {a: [0, 0, 0], b: [16, 9, 0]}\ncolour_tolerance: 8",
            "colour_tolerance: 8 reaches from 'a' [0, 0, 0] to 'b' [16, 9, 0]; at most 7 tells them apart",
        ),
        ("resize_masks: linear", "resize_masks: Input should be 'nearest'"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, text, words):
    write(pairs(tmp_path) / "dataset.yaml", text)
    assert words in refusal(tmp_path)


@pytest.mark.parametrize("size", [(12, 16), (3, 4), (60, 80)])
@pytest.mark.parametrize("kind", ["coco", "labelme"])
def test_annotations_drawn_at_another_size_are_given_that_of_their_image(tmp_path, kind, size):
    """As masks are; that of a message is the line which does it. Cached labels are others."""
    for name in "ab":
        photo(tmp_path / "images" / f"{name}.jpg", size=size)
        if kind == "labelme":
            shapes = [{"label": "road", "points": [[2, 1], [7, 4]], "shape_type": "rectangle"}]
            shapes += [{"label": "car", "points": [[0, 4], [3, 6]], "shape_type": "rectangle"}]
            tree = {"shapes": shapes, "imageHeight": 6, "imageWidth": 8}
            write(tmp_path / "images" / f"{name}.json", json.dumps(tree))
    if kind == "coco":
        coco(tmp_path / "instances.json", ["a.jpg", "b.jpg"])
    before = listing(tmp_path)
    said = decode_and_survey(before, before.val[0])[0].problem or ""
    write(tmp_path / "dataset.yaml", said.split("`")[1])
    found = listing(tmp_path)
    survey, _, labels = decode_and_survey(found, found.val[0])
    assert survey.problem is None
    numbers = np.array([0, found.classes.index("road"), found.classes.index("car")], np.uint8)
    expected = Image.fromarray(numbers[SCENE]).resize(size[::-1], Image.Resampling.NEAREST)
    assert np.array_equal(labels, np.asarray(expected))
    assert any("get its size" in remark for remark in found.remarks)
    assert found.label_coding == f"{before.label_coding}, resize_masks nearest"


@pytest.mark.parametrize("claimed", [(9, 8), (16, 12), (3 * 2**16, 4 * 2**16)])
def test_annotations_of_another_shape_are_refused(tmp_path, claimed):
    """So are those that claim a size which no image has, before memory is taken for it."""
    write(tmp_path / "dataset.yaml", "resize_masks: nearest")
    for name in "ab":
        photo(tmp_path / "images" / f"{name}.jpg", size=(12, 16))
        tree = {"shapes": [{"label": "a", "points": [[0, 0], [1, 1]], "shape_type": "rectangle"}]}
        tree |= dict(zip(("imageHeight", "imageWidth"), claimed, strict=True))
        write(tmp_path / "images" / f"{name}.json", json.dumps(tree))
    found = listing(tmp_path)
    survey = decode_and_survey(found, found.val[0])[0]
    assert survey.part == "size"
    assert f"{claimed[1]}×{claimed[0]} labels for the 16×12 pixels" in (survey.problem or "")


def test_outlines_need_no_tolerance(tmp_path):
    """They have no colours."""
    for name in "ab":
        photo(tmp_path / "images" / f"{name}.jpg")
    coco(tmp_path / "instances.json", ["a.jpg", "b.jpg"])
    write(tmp_path / "dataset.yaml", "colour_tolerance: 8\ntrain: {images: images, coco: instances.json}")
    assert "labels come from coco, not from masks of colours" in refusal(tmp_path)


def test_another_leniency_is_another_place_in_the_cache(tmp_path):
    """Decoded labels differ; and those without any stay where they were."""
    write(pairs(tmp_path, kind="RGB") / "dataset.yaml", COLOURS)
    plain = listing(tmp_path).label_coding
    write(tmp_path / "dataset.yaml", f"{COLOURS}colour_tolerance: 8\nresize_masks: nearest")
    assert listing(tmp_path).label_coding == f"{plain}, resize_masks nearest, colour_tolerance 8"
    assert "tolerance" not in plain
