"""Suggests the images to label next: those that a model cannot decide on, no two of them alike.

Images are ranked by the model's doubt, to which every class contributes the same. A contact sheet shows each of them,
and where the model contradicts itself once the image is perturbed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from oneway import runs
from oneway.common.errors import UserError
from oneway.runs.atomic import refuse_unwritable, write_atomically
from oneway.tools.suggest.candidates import candidates_in_folder, candidates_of_run
from oneway.tools.suggest.choice import choose_spread
from oneway.tools.suggest.scores import Score, load_judge, score_images
from oneway.tools.suggest.sheet import cell, draw_sheet


@dataclass(frozen=True)
class Suggestions:
    """Which images to label next, best first, and what was left out."""

    chosen: tuple[Score, ...]
    alike: int
    """Images that were left out because they look like one that is suggested or labelled."""

    unreadable: tuple[str, ...]
    """Why single files could not be used."""

    table: Path
    sheet: Path


def suggest(
    path: Path,
    console: Console,
    *,
    folder: Path | None = None,
    count: int = 24,
    out: Path | None = None,
    refresh: bool = False,
    factory: str | None = None,
    device: str = "auto",
) -> Suggestions:
    """Writes a table of the images to label next, and a contact sheet that shows where they are difficult.

    Args:
        path: Run folder.
        console: Shows progress.
        folder: Images to choose from; by default the run's own that have no labels.
        count: How many.
        out: The table, a CSV file; by default suggest.csv in the run folder. The sheet lies beside it, as PNG.
        refresh: Accept that files of the run's data have changed since they were decoded.
        factory: The `model.factory` that the user agrees to run.
        device: Where the model runs.
    """
    table = out or path / "suggest.csv"
    if table.suffix.lower() != ".csv":
        raise UserError(f"--out {table}: the table is a .csv file; the contact sheet gets the same name with .png.")
    refuse_unwritable(table)
    run = runs.open_run(path)
    judge = load_judge(run, factory, device)
    if folder is None:
        candidates, labelled = candidates_of_run(run, console, refresh)
    else:
        candidates, labelled = candidates_in_folder(folder), []
    scores, unreadable = score_images(judge, candidates, console)
    if not scores:
        raise UserError(f"{folder or path}: no image without labels to choose from. Give a folder with --data DIR.")
    order, alike = choose_spread(scores, labelled, count)
    chosen = tuple(scores[index] for index in order)
    sheet = table.with_suffix(".png")
    by_name = {candidate.name: candidate for candidate in candidates}
    cells, divergences = [], []
    for rank, score in enumerate(chosen, start=1):
        pixels = np.asarray(by_name[score.name].read())
        kl, where = judge.contradiction(pixels)
        cells.append(cell(pixels, where, f"{rank}.  {score.name}", f"score {score.value:.2f}   KL {kl:.2f}"))
        divergences.append(kl)
    table.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(table, to_csv(chosen, divergences).encode())
    write_atomically(sheet, draw_sheet(cells))
    return Suggestions(chosen, alike, tuple(unreadable), table, sheet)


def to_csv(chosen: Sequence[Score], divergences: Sequence[float]) -> str:
    """A line for each image: rank, name, score, and the model's doubt and divergence in nats."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rank", "image", "score", "doubt", "kl"])
    for rank, (score, kl) in enumerate(zip(chosen, divergences, strict=True), start=1):
        writer.writerow([rank, score.name, *(f"{value:.4f}" for value in (score.value, score.doubt, kl))])
    return text.getvalue()
