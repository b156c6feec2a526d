"""Plots and pictures: exact colours, hatching where nothing counts, curves that end where the numbers do."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image

from oneway.common.terms import IGNORE
from oneway.data import Samples
from oneway.data.pictures import GROUND, MOST_HEIGHT, SHOWN_WIDTH, STROKE, draw_classes
from oneway.tools.evaluate import evenly_spaced
from oneway.tools.report import plots
from oneway.tools.report.gallery import photo
from oneway.tools.scenes import choose_scenes


def test_absent_class_is_marked() -> None:
    """A class without a value gets no bar but the word."""
    bars = [plots.Bars([50.0, None], 1)]
    drawing = plots.draw_class_bars("x", "IoU", ["road", "train"], bars, ["", "absent"])
    assert "50.0" in drawing
    assert ">absent<" in drawing
    assert "None" not in drawing


@pytest.mark.parametrize("name", ["road", "a very long name of something seen from above"])
def test_a_full_bar_leaves_room_for_its_gain(name: str) -> None:
    """The value beside the bar ends before the gain begins, whatever room the names take."""
    bars = [plots.Bars([100.0], 0), plots.Bars([99.9], 1)]
    drawing = plots.draw_class_bars("x", "IoU", [name], bars, ["−12.3"])
    placed = {
        text: (float(x), "end" in style)
        for style, x, text in re.findall(r'<text style="([^"]*)" x="([\d.]+)"[^>]*>([^<]*)</text>', drawing)
    }
    value, gain = placed["100.0"][0], placed["−12.3"][0]
    assert not placed["100.0"][1]
    assert placed["−12.3"][1]
    assert value + plots.text_width(["100.0"]) < gain - plots.text_width(["−12.3"])


def test_plots_take_their_colours_from_the_page() -> None:
    """No colour of its own, so that one plot is readable on light and on dark."""
    drawing = plots.draw_curves("x", "mIoU", "iteration", [plots.Line((1, 2), (10.0, 20.0), 0)])
    assert "var(--run-0)" in drawing
    assert not re.findall(r"#[0-9a-f]{6}\b(?!\")", re.sub(r"(id|href|url\(#)[^ ]*", "", drawing))


def test_long_curve_is_averaged_and_ends_with_its_last_value() -> None:
    """4000 points become 120: means of windows, but for the last, which is what a summary says too."""
    x, y = plots.average(plots.Line(range(4000), [float(i % 2) for i in range(4000)], 0))
    assert len(x) == len(y) == plots.POINTS
    assert y[:-1] == pytest.approx(0.5, abs=0.02)
    assert (x[-1], y[-1]) == (3999, 1)


def test_scenes_are_evenly_spaced() -> None:
    """The middles of equal parts; all of them where there are few."""
    assert evenly_spaced(100, 4) == [12, 37, 62, 87]
    assert evenly_spaced(3, 4) == [0, 1, 2]


def test_scenes_show_what_only_few_images_have() -> None:
    """Four of 100 are as before while they show every class; else each is one of its 25, the one with what is rare."""
    labels = np.zeros((100, 4, 4), dtype=np.uint8)
    labels[[12, 40], 0] = 1
    samples = Samples.stacked(tuple(map(str, range(100))), np.zeros((100, 4, 4, 3), dtype=np.uint8), labels)
    assert choose_scenes(samples, 4) == evenly_spaced(100, 4)
    labels[12] = IGNORE
    labels[[70, 71], 1] = 2
    labels[71, 2] = 3
    chosen = choose_scenes(samples, 4)
    assert [index // 25 for index in chosen] == [0, 1, 2, 3]
    assert chosen[1:3] == [40, 71]
    assert choose_scenes(samples, 200) == list(range(100))


def pixels_of(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture.convert("RGB"))


def test_class_map_shows_exact_colours_and_hatches_ignored_pixels() -> None:
    """Every pixel of a class has its colour, also when enlarged; ignored ones have the hatching's two greys."""
    labels = np.repeat(np.array([[0, 1], [1, IGNORE]], dtype=np.uint8), 32, axis=1)
    picture = pixels_of(draw_classes(labels, [(1, 2, 3), (200, 100, 50)]))
    height, width = picture.shape[0] // 2, picture.shape[1] // 2
    assert (picture[:height, :width] == (1, 2, 3)).all()
    assert (picture[:height, width:] == (200, 100, 50)).all()
    assert {tuple(int(c) for c in pixel) for pixel in picture[height:, width:].reshape(-1, 3)} == {STROKE, GROUND}


def test_photo_is_hatched_outside_the_image() -> None:
    """What a warp leaves empty is not shown as black."""
    valid = np.ones((32, 64), dtype=bool)
    valid[:, :32] = False
    picture = pixels_of(photo(np.zeros((32, 64, 3), dtype=np.uint8), valid))
    half = picture.shape[1] // 2
    assert picture[:, :half].min() > 0
    assert picture[:, half:].max() == 0


@pytest.mark.parametrize(
    ("shape", "shown"), [((64, 128), (192, 384)), ((1024, 2048), (204, 409)), ((300, 384), (300, 384))]
)
def test_pictures_come_to_about_one_width(shape: tuple[int, int], shown: tuple[int, int]) -> None:
    """Small images are enlarged and large ones reduced, by whole numbers."""
    assert pixels_of(draw_classes(np.zeros(shape, dtype=np.uint8), [(0, 0, 0)])).shape[:2] == shown


def test_as_many_classes_as_there_can_be_leave_a_colour_for_ignored_pixels() -> None:
    """A palette has 256 colours."""
    colours = [(value, 0, 0) for value in range(255)]
    picture = pixels_of(draw_classes(np.array([[254, 255]], dtype=np.uint8), colours))
    assert tuple(picture[0, 0]) == (254, 0, 0)
    assert tuple(picture[0, -1]) not in colours


@pytest.mark.parametrize(("height", "width"), [(1, 5000), (1, 1), (5000, 1), (1, 64), (3000, 2), (720, 960), (32, 64)])
def test_strips_are_shown(height: int, width: int) -> None:
    """One pixel remains of the short side, and the long side stays on the page."""
    for picture in (
        draw_classes(np.zeros((height, width), np.uint8), [(0, 0, 0)]),
        photo(np.zeros((height, width, 3), np.uint8), np.ones((height, width), np.bool_)),
    ):
        assert 1 <= picture.width <= 2 * SHOWN_WIDTH
        assert 1 <= picture.height <= 2 * MOST_HEIGHT
