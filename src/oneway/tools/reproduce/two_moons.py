"""Figure 1: which kind of consistency finds the two moons from six labelled points."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from oneway import data
from oneway.common.drawing import Axes, Figure, LinearSegmentedColormap, style
from oneway.common.errors import UserError
from oneway.common.threads import count_cores
from oneway.common.words import say
from oneway.config import Config
from oneway.config.recipes import recipe
from oneway.methods import VariantName
from oneway.runs import load_model, open_run
from oneway.runs.atomic import write_json
from oneway.tools.reproduce.figures import save
from oneway.tools.reproduce.fill_table import as_rich
from oneway.tools.reproduce.jobs import Job, Request, train_all
from oneway.tools.reproduce.results import measure_all, read_trained, runs_as_json

PANELS: dict[str, tuple[str, str, VariantName]] = {
    "none": ("no consistency loss", "supervised", "1w-ct"),
    "1w-cs": ("one-way, clean student", "simple-noise", "1w-cs"),
    "1w-ct": ("one-way, clean teacher", "simple-noise", "1w-ct"),
    "2w-c1": ("two-way, one input clean", "simple-noise", "2w-c1"),
}
"""In the paper's order: folder, title, method, variant."""

STYLE = {"svg.hashsalt": "two-moons", "font.size": 9}


def two_moons(request: Request, console: Console) -> None:
    """Train the four panels for each seed, draw the figure of the first seed, and print the means."""
    if request.data or request.rows or request.columns or request.changes or request.drives or request.table_only:
        raise UserError(
            "two-moons draws its own points: it takes no --data, --row, --column, --drives, --table-only or --config."
        )
    out = request.out
    # The runs are too small for more than a core each. A few more of them than cores: at the end, no core is idle.
    jobs = [
        Job(f"seed {seed}  {panel:6}", out / f"seed{seed}" / panel, panel_config(panel, seed, request.iterations))
        for panel in PANELS
        for seed in range(request.seeds)
    ]
    train_all(jobs, request.side_by_side or count_cores() + 2, console)
    labels = recipe("moons").labels
    runs = {
        (panel, labels): {("", seed): read_trained(out / f"seed{seed}" / panel) for seed in range(request.seeds)}
        for panel in PANELS
    }
    cells = measure_all(runs)
    figure = draw_figure({panel: out / "seed0" / panel for panel in PANELS})
    with style(STYLE):
        save(figure, out / "two-moons")
    results = {"experiment": "two-moons", "cells": [cell.as_json() for cell in cells], "runs": runs_as_json(runs)}
    write_json(out / "results.json", results)
    lines = [("setup", "accuracy"), *((f"{PANELS[cell.row][0]} ({cell.row})", str(cell.score)) for cell in cells)]
    title = f"Two moons, validation accuracy in %, mean ± deviation, n = {request.seeds}"
    caption = "The paper: the clean teacher outperforms all others; two-way lies between the two one-way kinds."
    console.print(as_rich(lines, title, caption))
    say(console, f"Figure: {out / 'two-moons.png'} and .svg")


def panel_config(panel: str, seed: int, iterations: int | None = None) -> Config:
    """The `moons` recipe, of another length if asked for; points, labelled subset and weights follow the seed."""
    _, method, variant = PANELS[panel]
    config = recipe("moons").changed(method=method, variant=variant, seed=seed, data={"seed": seed})
    return config if iterations is None else config.changed(train={"iterations": iterations})


def draw_figure(folders: dict[str, Path]) -> Figure:
    """Four panels: the decision surface, the labelled points in their colours and the unlabelled ones in white."""
    with style(STYLE):
        figure = Figure(figsize=(7.2, 5.2), layout="constrained")
        for axes, (panel, folder) in zip(figure.subplots(2, 2).flat, folders.items(), strict=True):
            accuracy = (open_run(folder).summary or {})["value"]
            _draw_panel(axes, folder)
            axes.set_title(f"{PANELS[panel][0]} ({panel}): {accuracy:.1f} %")
    return figure


def _draw_panel(axes: Axes, folder: Path) -> None:
    run = open_run(folder)
    trained = load_model(run.model_file, torch.device("cpu"))
    samples = data.load(run.config.data).read("train")
    labelled = set(run.split.labelled)
    is_labelled = np.array([name in labelled for name in samples.names])
    red, blue = (tuple(channel / 255 for channel in colour) for colour in trained.colours)
    surface = LinearSegmentedColormap.from_list("surface", (red, (0.97, 0.97, 0.97), blue))

    x, y = np.meshgrid(np.linspace(-1.5, 2.5, 240), np.linspace(-1.1, 1.6, 160))
    grid = torch.from_numpy(np.stack((x.ravel(), y.ravel()), axis=1).astype(np.float32))
    with torch.no_grad():
        probability = trained.network(grid).softmax(dim=1)[:, 1].numpy().reshape(x.shape)
    axes.contourf(x, y, probability, levels=np.linspace(0, 1, 21), cmap=surface, alpha=0.75)
    axes.contour(x, y, probability, levels=[0.5], colors="black", linewidths=0.8)
    _scatter(axes, samples.pixels[~is_labelled], "white", 14)
    for index, colour in enumerate((red, blue)):
        _scatter(axes, samples.pixels[is_labelled & (samples.labels[:] == index)], colour, 42)
    axes.set(xticks=[], yticks=[], aspect="equal")


def _scatter(axes: Axes, points: npt.NDArray[np.float32], colour: object, size: int) -> None:
    axes.scatter(points[:, 0], points[:, 1], s=size, color=[colour], edgecolors="black", linewidths=0.6, zorder=3)
