"""The paper's figures of settings, as points over labels alone, beside what the paper says of Cityscapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from oneway.common.drawing import Axes, Figure, style
from oneway.tools.reproduce.paired_tables import BOTH_INPUTS, STANDARD, weight_name
from oneway.tools.reproduce.results import Cell, Mean
from oneway.tools.reproduce.tables import BY_STRENGTH, STRENGTHS, STRENGTHS_IN_PAPER, WEIGHTS, strength_name

SUPERVISED_IN_PAPER = 61.5
"""With a quarter of the labels of half-resolution Cityscapes."""

BEST_STRENGTHS_IN_PAPER = (1, 0.5)
BEST_WEIGHTS_IN_PAPER = (0.25, 0.75)

CLEAN_INPUTS_IN_PAPER = {
    "the paper: half-resolution Cityscapes": (0.3, 1.4),
    "the paper: Cityscapes": (-1.1, -0.1),
}
"""Points that statistics of clean inputs alone bring, from the least to the most over numbers of labels."""

OURS, THEIRS = "#2b6cb0", "#c05621"
STYLE = {"svg.hashsalt": "settings", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
NARROWEST = 0.5
"""Points that a scale of colours spans at least, so that chance does not look like much."""


def draw_settings(folder: Path, cells: Sequence[Cell]) -> list[Path]:
    """Draw what these cells have of each figure, by number of labels, as PNG and SVG; returns them without ending."""
    drawn = []
    for column in dict.fromkeys(cell.column for cell in cells):
        rows = {cell.row: cell for cell in cells if cell.column == column}
        over = {row: cell.difference for row, cell in rows.items() if cell.difference is not None}
        strengths = {place: over[name] for place in BY_STRENGTH if (name := strength_name(*place)) in over}
        weights = {alpha: over[name] for alpha in WEIGHTS if (name := weight_name(alpha)) in over}
        clean, both = rows.get(STANDARD), rows.get(BOTH_INPUTS)
        with style(STYLE):
            for name, figure in {
                "perturbation-strength": _draw_strengths(strengths) if len(strengths) > 1 else None,
                "consistency-weight": _draw_weights(weights) if len(weights) > 1 else None,
                "batch-norm": _draw_inputs(clean.score.over(both.score)) if clean and both else None,
            }.items():
                if figure is not None:
                    drawn.append(folder / f"{name}-{column}")
                    save(figure, drawn[-1])
    return drawn


def save(figure: Figure, file: Path) -> None:
    """Save a figure as PNG and SVG, without a date, so that equal figures are equal files."""
    for kind in ("png", "svg"):
        figure.savefig(
            file.with_name(f"{file.name}.{kind}"), dpi=200, metadata={"Date": None} if kind == "svg" else None
        )


def _draw_strengths(found: Mapping[tuple[float, float], Mean]) -> Figure:
    """Two grids of s_G by s_P, ours and what the paper's tables have of its own."""
    theirs = {place: float(value) - SUPERVISED_IN_PAPER for place, value in STRENGTHS_IN_PAPER.items()}
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    words = {place: _signed(mean) for place, mean in found.items()}
    values = {place: mean.mean for place, mean in found.items()}
    _draw_grid(panels[0], values, words, f"ours, {_seeds(found.values())}")
    words = {BEST_STRENGTHS_IN_PAPER: "best", **{place: f"{value:+.1f}" for place, value in theirs.items()}}
    _draw_grid(panels[1], theirs, words, "the paper, half-resolution Cityscapes")
    panels[0].set_ylabel("geometric strength s_G")
    figure.suptitle("mIoU over labels alone, in points")
    return figure


def _draw_grid(
    axes: Axes, values: Mapping[tuple[float, float], float], words: Mapping[tuple[float, float], str], title: str
) -> None:
    grid = np.array([[values.get((g, p), np.nan) for p in STRENGTHS] for g in STRENGTHS])
    most = max(NARROWEST, float(np.nanmax(np.abs(grid))))
    axes.imshow(grid, cmap="RdBu", vmin=-most, vmax=most, alpha=0.6)
    for (row, g), (column, p) in product(enumerate(STRENGTHS), enumerate(STRENGTHS)):
        axes.text(column, row, words.get((g, p), "–"), ha="center", va="center", fontsize=8)
    axes.set_xticks(range(len(STRENGTHS)), [f"{p:g}" for p in STRENGTHS])
    axes.set_yticks(range(len(STRENGTHS)), [f"{g:g}" for g in STRENGTHS])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="photometric strength s_P", title=title)


def _draw_weights(found: Mapping[float, Mean]) -> Figure:
    """Points over labels alone against α, and where the paper's figure is best."""
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(*BEST_WEIGHTS_IN_PAPER, color=THEIRS, alpha=0.15, linewidth=0, label="the paper's best, Cityscapes")
    errors = [mean.standard_error or 0.0 for mean in found.values()]
    means = [mean.mean for mean in found.values()]
    axes.errorbar(list(found), means, errors, fmt="o-", color=OURS, capsize=3, label=f"ours, {_seeds(found.values())}")
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set(xlabel="α", ylabel="mIoU over labels alone, in points")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0)
    return figure


def _draw_inputs(ours: Mean | None) -> Figure | None:
    """What clean statistics bring: ours with every seed, and the paper's ranges; None where no seed has both."""
    if ours is None:
        return None
    figure = Figure(figsize=(6.4, 2.2), layout="constrained")
    axes = figure.subplots()
    axes.use_sticky_edges = False  # a bar that ends at the axis looks cut off
    names = [f"ours, {_seeds([ours])}", *CLEAN_INPUTS_IN_PAPER]
    axes.errorbar([ours.mean], [0], xerr=[ours.standard_error or 0.0], fmt="o", color=OURS, capsize=3)
    axes.plot(list(ours.by_seed.values()), [0] * len(ours.by_seed), "|", color=OURS, markersize=12)
    for place, (least, most) in enumerate(CLEAN_INPUTS_IN_PAPER.values(), start=1):
        axes.barh(place, most - least, left=least, height=0.4, color=THEIRS, alpha=0.5)
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("mIoU with statistics of clean inputs over those of both, in points")
    return figure


def _signed(mean: Mean) -> str:
    error = mean.standard_error
    return f"{round(mean.mean, 1) + 0.0:+.1f}" + ("" if error is None else f"\n± {error:.1f}")


def _seeds(means: Iterable[Mean]) -> str:
    counts = sorted({len(mean.by_seed) for mean in means})
    return f"n = {' or '.join(map(str, counts))}"
