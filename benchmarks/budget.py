"""Draws what longer and larger training brings on façades: points over the default against GPU time.

python benchmarks/budget.py        # reads docs/results/facade.json, writes docs/results/budget.svg
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

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
}
LABELS_ALONE = 3 * 8 / (3 * 24 + 8)
OURS, OTHERS = "#2b6cb0", "#718096"


def points(results: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Seconds, and mIoU over the default of the same seeds."""
    known = {(run["row"], run["column"], run["seed"]): run["value"] for run in results["runs"]}
    default = {
        run["seed"]: mean((run["value"], known["mt-colour-cutmix-drop", "50", run["seed"]]))
        for run in results["the default again"]
    }
    alone = mean(known["supervised", "50", seed] - value for seed, value in default.items())
    found = {"labels alone": (LABELS_ALONE, alone), "the default": (1.0, 0.0)}
    for name, cost in COST.items():
        runs = [run for run in results["one change of the default"] if run["change"] == name]
        found[name] = cost, mean(run["value"] - default[run["seed"]] for run in runs)
    return {name: (cost * 2 * MILLISECONDS, value) for name, (cost, value) in found.items()}


def draw(found: dict[str, tuple[float, float]]) -> Figure:
    """One point for each, with its name beside it."""
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.axhline(0, color="grey", linewidth=0.8)
    for name, (seconds, value) in found.items():
        colour = OURS if name == "the default" else OTHERS
        axes.plot(seconds, value, "o", color=colour)
        below = name == "448² crops"
        axes.annotate(name, (seconds, value), (7, -11 if below else 4), textcoords="offset points", color=colour)
    axes.set(xlabel="seconds of an H200", ylabel="mIoU over the default, points", xlim=(0, 32), ylim=(-6, 2.2))
    return figure


if __name__ == "__main__":
    with style({"svg.hashsalt": "budget", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = draw(points(json.loads((RESULTS / "facade.json").read_text())))
        figure.savefig(RESULTS / "budget.svg", metadata={"Date": None})
