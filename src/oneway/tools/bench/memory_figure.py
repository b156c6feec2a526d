"""The figure of `oneway bench memory`: a panel per engine and network, pale bars during a line, full ones after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from oneway.common.errors import UserError

COLOURS = {"one-way": "#2b6cb0", "two-way": "#c05621"}
ENGINES = {"oneway": "this engine", "plain": "plain PyTorch"}
WIDTH = 0.4


def refuse_unknown_format(file: Path) -> None:
    """Before anything is measured."""
    if file.suffix.removeprefix(".") not in FigureCanvasBase.filetypes:
        raise UserError(f"{file}: unknown kind of picture '{file.suffix}'. Use .png, .svg or .pdf.")


def draw_memory(results: list[dict[str, Any]], file: Path, unit: str) -> None:
    """Draws what `bench_memory` measured into a file, whose ending is its format."""
    rows, columns = (list(dict.fromkeys(row[key] for row in results)) for key in ("engine", "case"))
    with mpl.rc_context({"svg.hashsalt": "memory", "font.size": 9}):
        figure = Figure(figsize=(4.2 * len(columns), 0.8 + 2.4 * len(rows)), layout="constrained")
        panels = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
        for axes_of_row, engine in zip(panels, rows, strict=True):
            for axes, case in zip(axes_of_row, columns, strict=True):
                _draw_panel(axes, [row for row in results if (row["engine"], row["case"]) == (engine, case)])
                axes.set_title(f"SwiftNet-{case.upper()}, {ENGINES[engine]}")
            axes_of_row[0].set_ylabel(unit)
        figure.savefig(file, dpi=200, metadata={"Date": None} if file.suffix == ".svg" else None)


def _draw_panel(axes: Axes, results: list[dict[str, Any]]) -> None:
    for place, row in enumerate(results):
        lines, colour = row["lines"], COLOURS[row["way"]]
        x = [index + (place - 0.5) * WIDTH for index in range(len(lines))]
        axes.bar(x, [line["during_mib"] for line in lines], WIDTH, color=colour, alpha=0.35)
        axes.bar(x, [line["after_mib"] for line in lines], WIDTH, color=colour, label=row["way"])
    labels = [f"{line['number']} {line['does']}" for line in results[0]["lines"]]
    axes.set_xticks(range(len(labels)), labels, rotation=40, ha="right", rotation_mode="anchor")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="pale: during, full: after", frameon=False, fontsize=8, title_fontsize=8)
