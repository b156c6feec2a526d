"""`oneway suggest`: which images to label next.

A model that says one thing about an image and another about the same image perturbed has not understood it, and neither
has one that cannot decide: images are ranked by how much the two predictions differ and by how uncertain they are, and
no two that look alike are suggested.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from oneway import run as runs
from oneway.atomic import write_atomically
from oneway.errors import UserError
from oneway.suggest.candidates import found_in, without_labels
from oneway.suggest.choice import spread
from oneway.suggest.scores import Score, judge_of, scored
from oneway.suggest.sheet import cell, contact_sheet

__all__ = ["Suggestions", "suggest"]


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
    path: Path, console: Console, *, folder: Path | None = None, count: int = 24, out: Path | None = None
) -> Suggestions:
    """Writes a table of images that should be labelled next, and a contact sheet that shows where they are difficult.

    Args:
        path: Run folder.
        console: Shows progress.
        folder: Images to choose from; by default the run's own that have no labels.
        count: How many.
        out: The table, a CSV file; by default suggest.csv in the run folder. The sheet lies beside it, as PNG.
    """
    run = runs.open_run(path)
    judge = judge_of(run)
    candidates, labelled = without_labels(run, console) if folder is None else (found_in(folder), [])
    scores, unreadable = scored(judge, candidates, console)
    if not scores:
        raise UserError(f"{folder or path}: no image without labels to choose from. Give a folder with --data DIR.")
    order, alike = spread(scores, labelled, count)
    chosen = tuple(scores[index] for index in order)
    table = out or path / "suggest.csv"
    sheet = table.with_suffix(".png")
    write_atomically(table, as_csv(chosen).encode())
    by_name = {candidate.name: candidate for candidate in candidates}
    cells = [cell(judge, by_name[score.name], rank, score) for rank, score in enumerate(chosen, start=1)]
    write_atomically(sheet, contact_sheet(cells))
    return Suggestions(chosen, alike, tuple(unreadable), table, sheet)


def as_csv(chosen: Sequence[Score]) -> str:
    """A line for each image: rank, name, score, and the two parts of the score."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rank", "image", "score", "kl", "doubt"])
    for rank, score in enumerate(chosen, start=1):
        writer.writerow([rank, score.name, *(f"{part:.4f}" for part in (score.value, score.kl, score.doubt))])
    return text.getvalue()
