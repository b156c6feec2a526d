"""The drawings of the page, each with its title."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from oneway.tools.report import confusion, plots
from oneway.tools.report.class_words import class_gains
from oneway.tools.report.differences import signed
from oneway.tools.report.facts import RunFacts, curve_titles
from oneway.tools.report.robustness import STRENGTHS, Robustness


@dataclass(frozen=True)
class Plot:
    """A drawing with its title and, where it is about one run, that run's colour."""

    title: str
    svg: Markup
    colour: int | None = None


def curves(runs: Sequence[RunFacts]) -> list[Plot]:
    """The metric on validation, and every loss that some run has."""
    losses = dict.fromkeys(name for run in runs for name in run.losses)
    drawn = []
    for number, (key, title) in enumerate(curve_titles(runs[0].metric, losses).items()):
        of_runs = [(run.series(key), run.colour) for run in runs]
        lines = [plots.Line(series.iterations, series.values, colour) for series, colour in of_runs if series.values]
        if lines:
            drawn.append(Plot(title, plots.draw_curves(f"curve-{number}", title, "iteration", lines)))
    return drawn


def bars(runs: Sequence[RunFacts]) -> Plot:
    """IoU per class; with two runs the classes are sorted by gain, else they stand in their own order."""
    gains = class_gains(*runs) if len(runs) == 2 else {}
    classes = sorted(runs[0].classes, key=lambda name: -gains.get(name, float("-inf"))) if gains else runs[0].classes
    absent = set(runs[0].absent)
    bars = [
        plots.Bars([None if name in absent else run.per_class[name] for name in classes], run.colour) for run in runs
    ]
    notes = ["absent" if name in absent else signed(gains[name]) if name in gains else "" for name in classes]
    measured = "IoU per class, %" if runs[0].metric == "miou" else "Share of a class that is recognised, %"
    title = f"{measured}, and the gain in points" if gains else measured
    return Plot(title, plots.draw_class_bars("classes", title, classes, bars, notes))


def heat_maps(runs: Sequence[RunFacts], shown: list[int]) -> list[Plot]:
    """The confusion of each run, among the classes that are shown."""
    classes = [runs[0].classes[index] for index in shown]
    drawn = []
    for index, run in enumerate(runs):
        title, shares = f"Confusion of {run.name}", run.row_shares[np.ix_(shown, shown)]
        drawing = confusion.draw_heat_map(f"confusion-{index}", title, classes, shares, run.colour)
        drawn.append(Plot(run.name, drawing, run.colour))
    return drawn


def robustness_plots(runs: Sequence[RunFacts], found: Robustness) -> list[Plot]:
    """The metric against the strength of each component, on one scale."""
    top = max(max(values) for values in (*found.photometric, *found.geometric))
    drawn = []
    for name, manner, of_runs in (
        ("photometric", "Changed colours", found.photometric),
        ("geometric", "Warped", found.geometric),
    ):
        title, axis = f"{manner}: {runs[0].metric_name}, %", f"{name} strength"
        lines = [plots.Line(STRENGTHS, values, run.colour) for run, values in zip(runs, of_runs, strict=True)]
        drawn.append(Plot(title, plots.draw_curves(f"robustness-{name}", title, axis, lines, STRENGTHS, top)))
    return drawn
