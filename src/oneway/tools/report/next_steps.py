"""What to do with runs once the page about them is read."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from oneway.common.bounded import read_bounded
from oneway.common.errors import UserError
from oneway.common.links import is_ordinary
from oneway.common.run_files import CONTACT_SHEET, SUGGESTIONS
from oneway.common.words import command, from_table_cell
from oneway.tools.report.facts import RunFacts

FIRST = 5
"""Names of images to label next that stand in the page itself: its links may be dead when it is read elsewhere."""

MOST_BYTES = 2**24
"""Of a table of suggestions."""

LONGEST = 500
"""Characters of a name in it."""


@dataclass(frozen=True)
class Step:
    """A command, what it is for, and what it has left behind already."""

    purpose: str
    command: str
    found: str = ""
    files: tuple[tuple[str, str], ...] = ()
    """Names, and addresses as seen from the page."""


def next_steps(runs: Sequence[RunFacts], folder: Path, segmentation: bool) -> list[Step]:
    """What one may do next; addresses are as seen from a page in `folder`."""
    best = max(runs, key=lambda run: run.value)
    return [*(_looking_closer(runs, best, folder) if segmentation else ()), *_using(best)]


def _using(run: RunFacts) -> list[Step]:
    """Commands that put a model to use."""
    return [
        Step(
            purpose=f"Predict images of your own with {run.name}, here those of a folder named photos:",
            command=_command("predict", [run], "photos", "--out", "predictions"),
        ),
        Step(
            purpose=f"Export {run.name} to one file that runs without oneway:",
            command=_command("export", [run], "--to", "model.onnx"),
        ),
    ]


def _command(verb: str, runs: Sequence[RunFacts], *rest: str) -> str:
    """A line to copy; a network that is not ours needs its function named."""
    factory = runs[-1].config.model.factory
    own = ("--model.factory", factory) if factory else ()
    return command("oneway", verb, *(run.path for run in runs), *rest, *own)


def _looking_closer(runs: Sequence[RunFacts], best: RunFacts, folder: Path) -> list[Step]:
    """Commands that show where segmentation models fail, and which labels would help."""
    shown = (runs[0], runs[-1] if best is runs[0] else best) if len(runs) > 1 else (best,)  # explore takes two
    written = [best.path / name for name in (SUGGESTIONS, CONTACT_SHEET)]
    names = _first_names(written[0])
    return [
        Step(
            purpose="Perturb images by hand, and see in a browser where a model contradicts itself:",
            command=_command("explore", shown),
        ),
        Step(
            purpose=f"Find the images to label next for {best.name}, those that it cannot decide on:",
            command=_command("suggest", [best]),
            found=f"It has been run, and puts first: {', '.join(names)}. More in {best.path}:" if names else "",
            files=tuple((file.name, _address(file, folder)) for file in written if names and is_ordinary(file)),
        ),
    ]


def _first_names(table: Path) -> list[str]:
    """The first images in a table that `oneway suggest` has written; none where there is no such table."""
    if not is_ordinary(table):  # a link could lead to any file, a column of which would stand in the page
        return []
    try:
        text = read_bounded(table, MOST_BYTES).decode("utf-8")
        rows = islice(csv.DictReader(text.splitlines()), FIRST)
        return [from_table_cell(row["image"])[:LONGEST] for row in rows if row["image"]]
    except (UserError, ValueError, KeyError, csv.Error):
        return []


def _address(file: Path, folder: Path) -> str:
    """The address of a file, as seen from a page in `folder`."""
    return quote(Path(os.path.relpath(file, folder)).as_posix())
