"""The confusion matrix as a plot that grows with its classes: what each of them is taken for.

Shapes: C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from oneway.common.drawing import Figure, Rectangle, style
from oneway.tools.report.plots import INK, PAPER, RUN, STYLE, UNIT, shorten, text_width, to_svg

Shares = npt.NDArray[np.float64]
"""C×C, in [0, 1]: which share of a true class (row) was given each class (column)."""

NAMED = 12
"""Classes whose columns have names, and whose cells have numbers; columns of more are numbered."""

MOST = 30
"""Classes that one plot shows."""


def choose_classes(of_runs: Sequence[Shares]) -> list[int]:
    """Indices of the classes to show: up to MOST, those with the largest confusions in any run, in their own order."""
    shares = np.max(of_runs, axis=0)
    count = len(shares)
    np.fill_diagonal(shares, -1)
    found: dict[int, None] = {}
    for pair in np.argsort(-shares, axis=None, kind="stable"):
        for index in divmod(int(pair), count):
            if len(found) < MOST:
                found[index] = None
    return sorted(found)


def draw_heat_map(name: str, title: str, classes: Sequence[str], shares: Shares, colour: int) -> Markup:
    """The fuller the colour, the larger the share. Many classes have numbers: in rows before cells, and at columns."""
    count = len(classes)
    named = count <= NAMED
    cell = min(56, max(16, 336 / count))
    rows = [shorten(one) for one in classes]
    if not named:
        rows = [f"{one}  {number}" for number, one in enumerate(rows, start=1)]
    side, left, top = cell * count, text_width(rows) + 32, 2 if named else 18
    below = 34 + (0.75 * text_width(rows) if named else 8)
    width, height = max(180, left + side + 2), top + side + below
    # Placed by hand: a layout that Matplotlib finds does not keep to the size of the cells.
    fixed = {"axes.spines.bottom": False, "xtick.bottom": False, "figure.constrained_layout.use": False}
    with style(STYLE | fixed):
        figure = Figure(figsize=(width / UNIT, height / UNIT))
        axes = figure.add_axes((left / width, below / height, side / width, side / height))
        for (row, column), share in np.ndenumerate(shares):
            full = 0.06 + 0.94 * float(share)
            place = (column - 0.47, row - 0.47)
            axes.add_patch(Rectangle(place, 0.94, 0.94, linewidth=0, facecolor=RUN[colour], alpha=full, clip_on=False))
            # Less than half a percent would read 0; among many classes a number would be too small to read.
            if named and share >= 0.005:
                text = PAPER if share > 0.65 else INK
                axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=10, color=text)
        if named:
            axes.set_xticks(range(count), rows, rotation=45, rotation_mode="anchor", ha="right")
        else:
            axes.set_xticks(range(count), [str(number) for number in range(1, count + 1)], fontsize=9)
            axes.tick_params(axis="x", labeltop=True)
        axes.set_yticks(range(count), rows)
        axes.tick_params(labelcolor=INK)
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        axes.set_xlim(-0.5, count - 0.5)
        axes.set_ylim(count - 0.5, -0.5)
        # As wide as its text needs to be read; where the page is narrower still, it scrolls.
        return to_svg(figure, name, title, f"width: {1.1 * width:.0f}px; min-width: {0.82 * width:.0f}px")
