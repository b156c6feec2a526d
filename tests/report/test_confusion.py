"""The confusion matrix stays legible: it grows with its classes, and shows the most confused of very many."""

from __future__ import annotations

import re

import numpy as np
import pytest

from oneway.tools.report import class_words, confusion, plots

LONG = "very large and heavy overhead power line"


def drawn(classes: list[str]) -> str:
    return confusion.draw_heat_map("x", "Confusion", classes, np.eye(len(classes)), 0)


def placed(drawing: str) -> list[tuple[str, float, float]]:
    """Texts with their places."""
    found = re.findall(r'<text style="[^"]*" x="([-\d.]+)" y="([-\d.]+)"[^>]*>([^<]*)</text>', drawing)
    return [(text, float(x), float(y)) for x, y, text in found]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("count", "name"), [(2, "car"), (12, LONG), (24, "電柱と電線"), (30, LONG)])
def test_labels_neither_overlap_nor_leave_the_plot(count: int, name: str) -> None:
    """Rows are a line apart, columns a number apart, and the longest name begins within the drawing."""
    classes = [f"{name} {index}" for index in range(count)]
    drawing = drawn(classes)
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)[0])
    texts = placed(drawing)
    rows = [place for place in texts if plots.shorten(name)[:3] in place[0]]
    heights = sorted({y for _, _, y in rows})
    assert len(rows) >= count
    assert min(np.diff(heights)) > 11
    assert all(0 <= x <= width and 0 <= y <= height for _, x, y in texts), "a text is outside"
    right = max(x for _, x, _ in rows[-count:])
    assert right - plots.text_width([text for text, _, _ in rows]) > 0
    if count > confusion.NAMED:
        columns = sorted({x for text, x, _ in texts if text.isdigit()})
        assert len(columns) == count
        assert min(np.diff(columns)) > plots.text_width(["30"])


def test_a_large_matrix_is_not_squeezed_onto_a_phone() -> None:
    """It scrolls, since its width has a lower bound at which text is still nine pixels high."""
    drawing = drawn([f"{LONG} {index}" for index in range(24)])
    width = float(re.findall(r'viewBox="0 0 ([\d.]+)', drawing)[0])
    least = float(re.findall(r"min-width: (\d+)px", drawing)[0])
    assert least / width * plots.STYLE["font.size"] >= 9


def test_the_most_confused_of_many_classes_are_shown() -> None:
    """Of 60 classes those of the largest shares off the diagonal, in any run, in their own order."""
    first, second = np.eye(60), np.eye(60)
    for index in range(14):
        first[index, 59 - index] = 0.2 + index / 100
    second[20, 30] = 0.15
    second[21, 31] = 0.1
    shown = confusion.choose_classes([first, second])
    assert shown == [*range(14), 20, 30, *range(46, 60)]
    assert "Of 60 classes, the 30 with the largest confusions" in class_words.matrix_note(len(shown), 60)
    assert first.trace() == 60, "what was given is left as it was"


def test_few_classes_are_all_shown() -> None:
    """Also those that nothing is confused with; the plot needs no note."""
    assert confusion.choose_classes([np.eye(11)]) == list(range(11))
    assert confusion.choose_classes([np.eye(30)]) == list(range(30))
    assert class_words.matrix_note(11, 11) == ""


def test_long_names_keep_their_beginning_and_end() -> None:
    """Names often begin alike, so that the end tells them apart."""
    assert plots.shorten("car") == "car"
    assert plots.shorten(LONG) == "very large and…power line"
    assert len(plots.shorten("x" * 200)) <= plots.LONGEST
