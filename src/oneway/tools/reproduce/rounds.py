"""Rounds of labelling on a folder whose masks are all there: images that `oneway suggest` names, against random ones.

A model is trained on few labels chosen at random. In each further round as many images more get their labels, chosen by
the model of the round before or at random, and a model is trained on all labels so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from oneway.common.drawing import Figure, style
from oneway.common.errors import UserError
from oneway.common.terms import SuggestBy
from oneway.common.words import counted, listed, say
from oneway.config import Data
from oneway.config.recipes import recipe
from oneway.data import QUIET, list_files
from oneway.runs import open_run
from oneway.runs.atomic import write_atomically, write_json
from oneway.tools.reproduce.figures import save
from oneway.tools.reproduce.jobs import Job, train_all
from oneway.tools.reproduce.requests import Request, cell_folder, check_request, run_config
from oneway.tools.reproduce.results import Mean, markdown_table, read_runs, runs_as_json
from oneway.tools.suggest.choose import choose_among
from oneway.tools.suggest.scores import candidates_of_run, load_judge

SHOWS = (
    "Rounds of labelling on façades, or any folder with a validation set: images that `suggest` names, or random ones"
)
RANDOM = "random"
ROWS: tuple[str, ...] = (RANDOM, *get_args(SuggestBy))
LABELS = ("20", "35", "50")
ITERATIONS = 2000

Values = Mapping[tuple[str, str], Mean]
"""mIoU, by who chooses and the number of labels."""


def run_rounds(request: Request, console: Console) -> None:
    """Trains the missing runs of those asked for; prints the results of all runs, and writes them beside the runs."""
    columns = _columns(request)
    refuse_other_rounds(request.out, columns)
    if not request.table_only:
        jobs = list(_jobs(request, columns))
        _refuse_too_few(jobs[0].config.data, int(columns[-1]))
        train_all(jobs, request.side_by_side or 1, console)
    runs = read_runs(request.out, ROWS, columns)
    if (RANDOM, columns[0]) not in runs:
        raise UserError(f"{request.out}: no run with {columns[0]} labels has ended there.")
    values = {
        place: Mean({seed: run.summary["value"] for (_, seed), run in found.items()}) for place, found in runs.items()
    }
    console.print(_to_rich(values, columns))
    cells = [
        {
            "row": row,
            "column": column,
            "score": score.as_json(),
            "difference": found.as_json() if (found := difference(values, row, column)) else None,
        }
        for (row, column), score in values.items()
    ]
    write_json(request.out / "results.json", {"experiment": "rounds", "cells": cells, "runs": runs_as_json(runs)})
    write_atomically(request.out / "table.md", to_markdown(values, columns).encode())
    with style({"svg.hashsalt": "rounds", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        save(_draw(values, columns), request.out / "rounds")
    say(console, f"{request.out / 'results.json'}, table.md, rounds.png and .svg")


def _columns(request: Request) -> tuple[str, ...]:
    """The numbers of labels, round by round."""
    columns = request.columns or LABELS
    numbers = [int(column) if column.isdecimal() else 0 for column in columns]
    if len(columns) < 2 or any(before >= after for before, after in pairwise([0, *numbers])):
        raise UserError(
            f"--labels {' '.join(columns)}: give growing numbers, one for each round, such as {' '.join(LABELS)}."
        )
    return columns


def refuse_other_rounds(out: Path, columns: Sequence[str]) -> None:
    """What a model chose depends on every round before: runs of other rounds are not those asked for."""
    asked = [int(column) for column in columns[1:]]
    for row in ROWS:
        numbers = {file.parent.name.removeprefix(f"{row}-") for file in out.glob(f"{row}-*/seed*.txt")}
        begun = sorted(int(number) for number in numbers if number.isdecimal())
        if begun and [n for n in asked if n <= begun[-1]] != [n for n in begun if n <= asked[-1]]:
            raise UserError(
                f"{out}: has rounds of {row} to {listed(begun, None)} labels, and not all are among --labels "
                f"{' '.join(columns)}, in their order. Ask for those, and more behind them, or give another --out."
            )


def _refuse_too_few(settings: Data, most: int) -> None:
    """Refuses a folder that has not enough masks for the last round, or none to judge by."""
    found = list_files(settings)
    if (masks := sum(item.mask is not None for item in found.train)) < most:
        raise UserError(f"--labels {most}: {found.root} has {counted(masks, 'image')} with a mask to train on.")
    if not found.val:
        raise UserError(f"{found.root}: no image validates (data.holdout 0), and rounds could not be compared.")


def _jobs(request: Request, columns: Sequence[str]) -> Iterator[Job]:
    """The most telling first: the common round, what models choose, round by round, and then what is chosen at random.

    Random images wait for no model, and so fill what room there is.
    """
    check_request("rounds", request, ROWS)
    config = recipe("folder").changed(train={"iterations": ITERATIONS})
    rows = dict.fromkeys(request.rows or ROWS)

    def at_random(column: str) -> Iterator[Job]:
        for seed in range(request.seeds):
            one = run_config(config.changed(labels=column), seed, request)
            yield Job(_title(RANDOM, column, seed), run_folder(request.out, RANDOM, column, seed), one)

    yield from at_random(columns[0])
    for (before, column), row in product(pairwise(columns), rows):
        for seed in range(request.seeds) if row != RANDOM else ():
            one = run_config(config, seed, request)
            folder = run_folder(request.out, row, column, seed)
            previous = run_folder(request.out, RANDOM if before == columns[0] else row, before, seed)
            file = folder.with_suffix(".txt").absolute()
            choose = partial(write_labels, previous, row, int(column) - int(before), file)
            yield Job(_title(row, column, seed), folder, one.changed(labels=str(file)), previous, choose)
    for column in columns[1:] if RANDOM in rows else ():
        yield from at_random(column)


def _title(row: str, column: str, seed: int) -> str:
    return f"{row}, {column} labels, seed {seed}"


def run_folder(out: Path, row: str, column: str, seed: int) -> Path:
    """The folder of a run."""
    return cell_folder(out, row, column) / f"seed{seed}"


def write_labels(previous: Path, by: SuggestBy, count: int, file: Path) -> None:
    """A list of the images that the run of the round before had labels for, and `count` more that it suggests.

    Those that have a mask, which training has not seen, are the ones to choose from.
    """
    run = open_run(previous)
    if file.is_file():  # a run that goes on
        if not set(run.split.labelled) <= set(file.read_bytes().decode(errors="surrogateescape").splitlines()):
            raise UserError(f"{file}: was chosen after another round than {previous}. Give another --out.")
        return
    candidates, labelled = candidates_of_run(run, QUIET, cache=run.config.data.cache)
    candidates = [candidate for candidate in candidates if candidate.has_mask]
    chosen = choose_among(load_judge(run), candidates, labelled, count, by, QUIET).chosen
    if len(chosen) < count:
        raise UserError(f"{previous}: of the images that it has no labels for, only {len(chosen)} can be chosen.")
    file.parent.mkdir(parents=True, exist_ok=True)
    names = (*run.split.labelled, *(score.name for score in chosen))
    write_atomically(file, "".join(f"{name}\n" for name in names).encode(errors="surrogateescape"))


def difference(values: Values, row: str, column: str) -> Mean | None:
    """To random images with the same seed and as many labels."""
    found = values.get((row, column))
    return None if found is None or row == RANDOM else found.over(values.get((RANDOM, column)))


def _to_rich(values: Values, columns: Sequence[str]) -> Table:
    caption = "In brackets: the difference to random images of the same seed, ± its standard error."
    printed = Table(title="Labels chosen in rounds: mIoU in %, last iteration, mean ± deviation", caption=caption)
    for head in ("chosen by", *(f"{column} labels" for column in columns)):
        printed.add_column(head, no_wrap=head == "chosen by")
    for row in dict.fromkeys(row for row, _ in values):
        printed.add_row(row, *(_text(values, row, column) for column in columns))
    return printed


def _text(values: Values, row: str, column: str) -> str:
    if (score := values.get((row, column))) is None:
        return ""
    over = difference(values, row, column)
    return f"{score}, n = {len(score.by_seed)}" + (f" ({over.with_error('+')})" if over else "")


def to_markdown(values: Values, columns: Sequence[str]) -> str:
    """A row for each way to choose, a column for each number of labels; the first is common to all."""
    rows = {
        f"`{row}`": {f"{column} labels": _text(values, row, column) for column in columns}
        for row in dict.fromkeys(row for row, _ in values)
    }
    return markdown_table("chosen by", [f"{column} labels" for column in columns], rows)


def _draw(values: Values, columns: Sequence[str]) -> Figure:
    """Labels against mIoU: the mean of each way to choose with its standard error, and every seed as a dot."""
    figure = Figure(figsize=(5.4, 3.6), layout="constrained")
    axes = figure.subplots()
    first = values[RANDOM, columns[0]]
    rows = list(dict.fromkeys(row for row, _ in values))
    gaps = [int(after) - int(before) for before, after in pairwise(columns)]
    for number, row in enumerate(rows):
        found = {int(columns[0]): first} | {int(c): values[row, c] for c in columns if (row, c) in values}
        aside = (number - (len(rows) - 1) / 2) * min(gaps) / 25  # or their bars would hide one another
        places = [labels + aside if labels > int(columns[0]) else labels for labels in found]
        errors = [mean.standard_error or 0.0 for mean in found.values()]
        lines = axes.errorbar(places, [mean.mean for mean in found.values()], errors, fmt="o-", capsize=3, label=row)
        for place, mean in zip(places, found.values(), strict=True):
            dots = list(mean.by_seed.values())
            axes.plot([place] * len(dots), dots, ".", color=lines[0].get_color(), alpha=0.4, markersize=4)
    axes.set_xticks([int(column) for column in columns])
    seeds = counted(sorted({len(mean.by_seed) for mean in values.values()}), "seed", joint=" or ")
    axes.set(xlabel="labelled images", ylabel=f"mIoU in %, mean of {seeds}")
    axes.legend(frameon=False, title="chosen by", loc="lower right")
    return figure
