"""Numbers to plots: pure functions that return SVG to stand in the page.

Plots carry no colours of their own. They are drawn in stand-ins, which become variables of the page's style sheet, so
that one plot serves light, dark and paper.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from unicodedata import east_asian_width

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from oneway.common.drawing import Axes, Figure, TextPath, style
from oneway.tools.report.facts import RUN_COLOURS

INK, FAINT, RULE, PAPER = "#000001", "#000002", "#000003", "#000004"
RUN = tuple(f"#0000{16 + index:x}" for index in range(RUN_COLOURS))
VARIABLES = {INK: "--ink", FAINT: "--faint", RULE: "--rule", PAPER: "--paper"} | {
    colour: f"--run-{index}" for index, colour in enumerate(RUN)
}

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: the style sheet gives it the page's font, and it can be selected
    "svg.hashsalt": "oneway",
    "font.family": "DejaVu Sans",  # comes with Matplotlib, so that text measures the same everywhere
    "font.size": 11,
    "text.parse_math": False,  # a dollar sign is part of a name
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": FAINT,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": RULE,
    "xtick.labelcolor": FAINT,
    "ytick.color": RULE,
    "ytick.labelcolor": FAINT,
    "ytick.left": False,
    "figure.constrained_layout.use": True,
}

UNIT = 72
"""SVG units per inch. A plot of 340 units is readable as wide as a phone, and three fit on a laptop."""

POINTS = 120
"""A curve has at most so many; a longer one is averaged over windows."""

LONGEST = 30
"""Characters of a name that a plot has room for."""


@dataclass(frozen=True)
class Line:
    """What is drawn of one run, point by point from left to right."""

    x: Sequence[float]
    y: Sequence[float]
    colour: int


@dataclass(frozen=True)
class Bars:
    """A value per class of one run; None where there is none."""

    values: Sequence[float | None]
    colour: int


def draw_curves(
    name: str, title: str, axis: str, lines: Sequence[Line], ticks: Sequence[float] = (), top: float = 0.0
) -> Markup:
    """One line per run, with its last value written at its end.

    Args:
        name: Of the drawing, within its page.
        title: For those who cannot see it.
        axis: What x is.
        lines: Those of many points are averaged.
        ticks: Where x has its ticks, and lines are marked; by default they are at round numbers, and only the ends are.
        top: A value that the plot has room for, whether it occurs or not.
    """
    with style(STYLE):
        figure = Figure(figsize=(340 / UNIT, 230 / UNIT))
        axes = figure.subplots()
        axes.grid(visible=True, axis="y")
        for line in lines:
            x, y = average(line)
            axes.plot(
                x,
                y,
                "o-",
                color=RUN[line.colour],
                linewidth=2,
                solid_capstyle="round",
                markersize=4.5,
                markevery=None if ticks else [len(x) - 1],
                clip_on=False,
            )
        axes.set_ylim(min(0, 1.08 * axes.dataLim.ymin), 1.08 * max(top, axes.dataLim.ymax, 1e-3))
        axes.set_xlim(0, axes.dataLim.xmax)
        axes.set_xlabel(axis)
        if ticks:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        else:
            axes.locator_params(axis="x", nbins=5, integer=True)
        axes.locator_params(axis="y", nbins=5)
        _label_ends(axes, [(line.y[-1], RUN[line.colour]) for line in lines])
        return to_svg(figure, name, title)


def draw_class_bars(
    name: str, title: str, classes: Sequence[str], bars: Sequence[Bars], notes: Sequence[str]
) -> Markup:
    """Percentages per class, the runs' bars beneath each other, with a note at the right of each class."""
    names = [shorten(name) for name in classes]
    with style(STYLE | {"axes.spines.bottom": False, "xtick.bottom": False}):
        row = 14 * len(bars) + 12
        # Bars keep their length whatever the names, since values and notes beside them do.
        width = max(400, 290 + text_width(names))
        figure = Figure(figsize=(width / UNIT, (row * len(classes) + 14) / UNIT))
        axes = figure.subplots()
        thickness = 13 / row
        for number, run in enumerate(bars):
            offset = (number - (len(bars) - 1) / 2) * 14 / row
            for place, value in enumerate(run.values):
                if value is None:
                    continue
                axes.barh(place + offset, value, height=thickness, color=RUN[run.colour], linewidth=0)
                axes.text(value + 1, place + offset, f"{value:.1f}", va="center_baseline", fontsize=10, color=INK)
        right = 135 if any(notes) else 112  # "100.0", and then "+12.3", fit beside a full bar
        for place, note in enumerate(notes):
            without = all(run.values[place] is None for run in bars)
            axes.text(0 if without else right, place, note, ha="left" if without else "right", va="center", color=FAINT)
        axes.set_yticks(range(len(classes)), names)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_xticks([])
        axes.set_xlim(0, right)
        axes.set_ylim(len(classes) - 0.5, -0.5)
        axes.axvline(0, color=RULE, linewidth=1)
        return to_svg(figure, name, title)


def shorten(name: str) -> str:
    """A name of at most LONGEST characters; of a longer one the middle is left out, since names often begin alike."""
    if len(name) <= LONGEST:
        return name
    half = LONGEST // 2
    end = name[1 - half :]
    return f"{name[:half].rstrip()}…{end.partition(' ')[2] or end}"


def text_width(names: Sequence[str]) -> float:
    """SVG units that the longest of some names takes."""
    return max(map(_width, names))


@cache
def _width(name: str) -> float:
    # The font that measures lacks Chinese, Japanese and Korean characters; they are as wide as its widest letter.
    measured = "".join("W" if east_asian_width(letter) in "WF" else letter for letter in name)
    with style(STYLE):
        return float(TextPath((0, 0), measured, size=STYLE["font.size"]).get_extents().width)


def average(line: Line) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """At most POINTS points; the last one is the last value itself, which is written beside it."""
    windows = min(POINTS, len(line.y))
    x, y = (
        np.array([window.mean() for window in np.array_split(np.array(values, dtype=np.float64), windows)])
        for values in (line.x, line.y)
    )
    x[-1], y[-1] = line.x[-1], line.y[-1]
    return x, y


def _label_ends(axes: Axes, ends: Sequence[tuple[float, str]]) -> None:
    """Write last values right of the axes, pushed apart where they would overlap."""
    decimals = 1 if max(value for value, _ in ends) >= 10 else 2
    low, high = axes.get_ylim()
    gap = (high - low) * 0.075
    place = -np.inf
    for value, colour in sorted(ends):
        place = max(value, place + gap)
        axes.annotate(
            f"{value:.{decimals}f}",
            (1, place),
            xycoords=("axes fraction", "data"),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            weight="bold",
        )


def to_svg(figure: Figure, name: str, title: str, css: str = "") -> Markup:
    """The figure as an `<svg>` element, sized by the page unless `css` says otherwise.

    `name` keeps its identifiers apart from those of other plots in the page.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the browser has fonts for what ours lacks
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    # Of the file only the drawing is kept: its header names a DTD, its metadata a licence of no concern, and its style
    # element would apply to the whole page.
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", buffer.getvalue(), flags=re.DOTALL)
    body = body[body.index(">", body.index("<svg")) + 1 :]
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    width, height = figure.get_size_inches() * UNIT
    sized = f' style="{css}"' if css else ""
    head = f'<svg class="plot" role="img" aria-label="{escape(title)}" viewBox="0 0 {width:g} {height:g}"{sized}>'
    return Markup(head + body)
