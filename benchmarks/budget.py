"""Draws what longer and larger training brings on façades: points over the default against GPU time.

python benchmarks/budget.py        # reads docs/results/facade.json, writes docs/results/budget.svg
"""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from oneway.common.drawing import Figure, style

RESULTS = Path(__file__).parents[1] / "docs/results"
MILLISECONDS = 6.375
"""An iteration of the default alone on an H200; others are scaled by the pixels that pass through the networks."""

# In runs of the default: 2,000 iterations with 8 labelled, 8 strong and 8 weakened crops that learn, three passes each,
# and 8 that the teacher sees.
COST = {
    "500 iterations": 0.25,
    "1,000 iterations": 0.5,
    "4,000 iterations": 2.0,
    "16 unlabelled images": (3 * 40 + 16) / (3 * 24 + 8),
    "448² crops": (448 / 352) ** 2,
    "16 unlabelled images, 448² crops": (3 * 40 + 16) / (3 * 24 + 8) * (448 / 352) ** 2,
}
SHOWN = {
    "16 unlabelled images, 448² crops": "both (--preset best)",
    "1,000 iterations": "1,000 iterations (--preset fast)",
}
LABELS_ALONE = 3 * 8 / (3 * 24 + 8)
OURS, OTHERS = "#2b6cb0", "#718096"


class Point(NamedTuple):
    """What a change costs, and what it brings."""

    seconds: float
    gain: float  # mIoU over the default of the same seeds
    error: float  # its standard error over seeds


def points(results: dict[str, Any]) -> dict[str, Point]:
    """By name."""
    known = {(run["row"], run["column"], run["seed"]): run["value"] for run in results["runs"]}
    default = {
        run["seed"]: mean((run["value"], known["mt-colour-cutmix-drop", "50", run["seed"]]))
        for run in results["the default again"]
    }
    changed: dict[str, dict[int, float]] = {name: {} for name in COST}
    for run in results["one change of the default"]:
        changed.get(run["change"], {})[run["seed"]] = run["value"]
    alone = {seed: known["supervised", "50", seed] for seed in default}
    found = {"the default": Point(2 * MILLISECONDS, 0, 0)}
    for name, values in {"labels alone": alone, **changed}.items():
        gains = [value - default[seed] for seed, value in values.items()]
        found[name] = Point(
            COST.get(name, LABELS_ALONE) * 2 * MILLISECONDS, mean(gains), stdev(gains) / sqrt(len(gains))
        )
    return found


def draw(found: dict[str, Point]) -> Figure:
    """One point for each, with its name beside it."""
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.axhline(0, color="grey", linewidth=0.8)
    for name, (seconds, gain, error) in found.items():
        colour = OURS if name == "the default" else OTHERS
        axes.errorbar(seconds, gain, error, fmt="o", color=colour, elinewidth=0.8)
        side, below = (-7 if name == "448² crops" else 7), name.endswith("iterations")
        axes.annotate(
            SHOWN.get(name, name),
            (seconds, gain),
            (side, -11 if below else 4),
            textcoords="offset points",
            color=colour,
            horizontalalignment="right" if side < 0 else "left",
        )
    axes.set(xlabel="seconds of an H200", ylabel="mIoU over the default, points", xlim=(0, 46), ylim=(-6.2, 2.4))
    return figure


if __name__ == "__main__":
    with style({"svg.hashsalt": "budget", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = draw(points(json.loads((RESULTS / "facade.json").read_text())))
        figure.savefig(RESULTS / "budget.svg", metadata={"Date": None})
