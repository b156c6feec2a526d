"""The paper's qualitative figure: what models make of validation images, clean and perturbed, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from oneway.common.drawing import Axes, Figure, style
from oneway.common.errors import UserError
from oneway.common.run_files import SUMMARY
from oneway.common.words import say
from oneway.runs import data_of, load_model, open_run
from oneway.tools.baseline import BASELINE
from oneway.tools.report.gallery import GalleryRow, gallery
from oneway.tools.reproduce.figures import save
from oneway.tools.reproduce.jobs import Request, jobs_of, train_all
from oneway.tools.reproduce.paired_tables import ALL_TABLES
from oneway.tools.run_data import load_data

WIDTH = 1.9
"""Inches of a picture."""


@dataclass(frozen=True)
class Qualitative:
    """Whose runs are shown: those of one number of labels of a table, which are trained where they are missing."""

    shows: str
    table: str
    column: str
    drives: tuple[str, ...] = ()
    """One to hold out, where there are drives."""

    rows: tuple[str, ...] = ("simple-phtps", BASELINE)
    """The usual ones, from left to right."""


QUALITATIVE: dict[str, Qualitative] = {
    "qualitative": Qualitative(
        "Predictions for half-resolution Cityscapes, clean and perturbed, as a figure", "cityscapes-half", "1/4"
    ),
    "camvid-qualitative": Qualitative("The same for a drive of CamVid that is held out", "camvid", "45", ("0006R0",)),
    "facade-qualitative": Qualitative("The same for façades, or any folder with a validation set", "facade", "50"),
}


def draw_qualitative(name: str, request: Request, console: Console) -> None:
    """Train what is missing of the first seed, and draw the figure; runs are in the folder of their table."""
    one = QUALITATIVE[name]
    if len(request.columns) > 1 or len(request.drives) > 1 or request.seeds > 1:
        raise UserError(f"reproduce {name}: is one figure, of one number of labels, one drive and the first seed.")
    asked = replace(
        request,
        out=request.out.parent / one.table,
        rows=tuple(dict.fromkeys(request.rows or one.rows)),
        columns=request.columns or (one.column,),
        drives=request.drives or one.drives,
    )
    jobs = jobs_of(name, ALL_TABLES[one.table], asked)
    if not request.table_only:
        train_all(jobs, request.side_by_side or 1, console)
    for job in jobs:
        if not (job.folder / SUMMARY).is_file():
            raise UserError(f"{job.folder}: no run has ended there; leave out --table-only to train it.")
    request.out.mkdir(parents=True, exist_ok=True)
    with style({"svg.hashsalt": "qualitative", "font.size": 9, "text.parse_math": False}):
        save(_figure(asked.rows, [job.folder for job in jobs], request, console), request.out / name)
    say(console, f"Figure: {request.out / name}.png and .svg")


def _figure(names: Sequence[str], folders: Sequence[Path], request: Request, console: Console) -> Figure:
    runs = [open_run(folder) for folder in folders]
    models = [load_model(run.model_file, torch.device("cpu")) for run in runs]
    settings = data_of(runs[0], console, request.data, cache=runs[0].config.data.cache)
    images = load_data(runs[0], models[0].classes, settings, console).read("val")
    rows = gallery(images, models, runs[0].config.perturb)
    heads = [
        "image",
        "ground truth",
        *(f"{name}: {(run.summary or {})['value']:.1f} %" for name, run in zip(names, runs, strict=True)),
    ]
    shape = images.image(0).shape
    figure = Figure(
        figsize=(WIDTH * len(heads), 0.3 + len(rows) * (WIDTH * shape[0] / shape[1] + 0.05)), layout="constrained"
    )
    panels = figure.subplots(len(rows), len(heads), squeeze=False)
    for title, axes in zip(heads, panels[0], strict=True):
        axes.set_title(title, fontsize=9)
    for row, of_row in zip(rows, panels, strict=True):
        _draw_row(of_row, row)
    return figure


def _draw_row(panels: Sequence[Axes], row: GalleryRow) -> None:
    for axes, picture in zip(panels, row.pictures, strict=True):
        axes.imshow(picture, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
    for axes, attempt in zip(panels[2:], row.attempts, strict=True):
        axes.set_xlabel(f"{attempt.miou:.1f} %", fontsize=7, labelpad=1)
    panels[0].set_ylabel("perturbed" if row.perturbed else "clean", fontsize=8)
