"""What a person sees of progress fits the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from oneway.common.words import duration
from oneway.tools.progress import narrated


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_count_score_and_time_left_are_always_there(width):
    """Losses give way first, in a narrow window."""
    screen = io.StringIO()
    console = Console(width=width, force_terminal=True, file=screen, color_system=None)
    with narrated(console, "simple-phtps · 9 labels · seed 0", 0, 4000) as narrator:
        narrator.advanced(19)
        narrator.measured(19, {"supervised": 0.296, "consistency": 0.329}, 5e-5)
        narrator.validated(19, "miou", 33.2)
    last = [line for line in screen.getvalue().splitlines() if "simple-phtps" in line][-1]
    assert "19/4000" in last
    assert "val 33.2 %" in last
    assert "left" in last
    assert ("consistency 0.329" in last) == (width == 140)


def test_times_are_said_as_people_say_them():
    """Not in thousands of seconds."""
    assert [duration(seconds) for seconds in (42, 185, 30949)] == ["42 s", "3 min 05 s", "8 h 35 min"]
