"""Rounds of labelling on a folder whose masks are all there: images that `oneway suggest` names, against random ones.

A model is trained on few labels chosen at random. In each further round as many images more get their labels, chosen by
the model of the round before or at random, and a model is trained on all labels so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from oneway.common.drawing import Figure, style
from oneway.common.errors import UserError
from oneway.common.terms import SuggestBy
from oneway.common.words import counted, listed, say
from oneway.config import Data
from oneway.config.recipes import recipe
from oneway.data import QUIET, list_files
from oneway.runs import open_run
from oneway.runs.atomic import write_atomically, write_json
from oneway.tools.reproduce.figures import STYLE, save
from oneway.tools.reproduce.fill_table import as_markdown, as_rich, grid, with_difference
from oneway.tools.reproduce.jobs import Job, Request, cell_folder, check_request, run_config, train_all
from oneway.tools.reproduce.results import Cell, measure_all, read_runs, runs_as_json
from oneway.tools.suggest.candidates import candidates_of_run
from oneway.tools.suggest.choose import choose_among
from oneway.tools.suggest.judge import load_judge

SHOWS = (
    "Rounds of labelling on façades, or any folder with a validation set: images that `suggest` names, or random ones"
)
RANDOM = "random"
ROWS: tuple[str, ...] = (RANDOM, *get_args(SuggestBy))
LABELS = ("20", "35", "50")
ITERATIONS = 2000


def run_rounds(request: Request, console: Console) -> None:
    """Train the missing runs of those asked for; prints the results of all runs, and writes them beside the runs."""
    columns = _columns(request)
    refuse_other_rounds(request.out, columns)
    if not request.table_only:
        jobs = list(_jobs(request, columns))
        _refuse_too_few(jobs[0].config.data, int(columns[-1]))
        train_all(jobs, request.side_by_side or 1, console)
    runs = read_runs(request.out, ROWS, columns)
    if (RANDOM, columns[0]) not in runs:
        raise UserError(f"{request.out}: no run with {columns[0]} labels has ended there.")
    cells = measure_all(runs, RANDOM)
    most = max(len(cell.score.by_seed) for cell in cells)
    lines = grid(cells, columns, partial(with_difference, most=most), head="chosen by")
    title = f"Labels chosen in rounds: mIoU in %, last iteration, mean ± deviation, n = {most}"
    caption = "In brackets: the difference to random images of the same seed, ± its standard error."
    console.print(as_rich(lines, title, caption))
    results = {"experiment": "rounds", "cells": [cell.as_json() for cell in cells], "runs": runs_as_json(runs)}
    write_json(request.out / "results.json", results)
    write_atomically(request.out / "table.md", as_markdown(lines).encode())
    with style(STYLE | {"svg.hashsalt": "rounds"}):
        save(_draw(cells, columns), request.out / "rounds")
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
    """Refuse a folder with runs of other rounds: what a model chose depends on every round before."""
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
    """Refuse a folder that has not enough masks for the last round."""
    found = list_files(settings)
    if (masks := sum(item.labelled for item in found.train)) < most:
        raise UserError(f"--labels {most}: {found.root} has {counted(masks, 'image')} with a mask to train on.")


def _jobs(request: Request, columns: Sequence[str]) -> Iterator[Job]:
    """The most telling first: the common round, what models choose, round by round, and then what is chosen at random.

    Random images wait for no model, and so fill what room there is.
    """
    check_request("rounds", request, ROWS)
    config = recipe("folder").changed(train={"iterations": ITERATIONS})
    rows = dict.fromkeys(request.rows or ROWS)

    def folder_of(row: str, column: str, seed: int) -> Path:
        return cell_folder(request.out, row, column) / f"seed{seed}"

    def job(row: str, column: str, seed: int, labels: str, *more: Any) -> Job:
        one = run_config(config.changed(labels=labels), seed, request)
        return Job(f"{row}, {column} labels, seed {seed}", folder_of(row, column, seed), one, *more)

    def at_random(column: str) -> Iterator[Job]:
        return (job(RANDOM, column, seed, column) for seed in range(request.seeds))

    yield from at_random(columns[0])
    for (before, column), row in product(pairwise(columns), rows):
        for seed in range(request.seeds) if row != RANDOM else ():
            previous = folder_of(RANDOM if before == columns[0] else row, before, seed)
            file = folder_of(row, column, seed).with_suffix(".txt").absolute()
            choose = partial(write_labels, previous, row, int(column) - int(before), file)
            yield job(row, column, seed, str(file), previous, choose)
    for column in columns[1:] if RANDOM in rows else ():
        yield from at_random(column)


def write_labels(previous: Path, by: SuggestBy, count: int, file: Path) -> None:
    """A list of the images that the run of the round before had labels for, and `count` more that it suggests.

    Those that have a mask, which training has not seen, are the ones to choose from.
    """
    run = open_run(previous)
    if file.is_file():  # a run that goes on
        if not set(run.split.labelled) <= set(file.read_bytes().decode(errors="surrogateescape").splitlines()):
            raise UserError(f"{file}: was chosen after another round than {previous}. Give another --out.")
        return
    judge = load_judge(run)
    candidates, labelled = candidates_of_run(run, judge.style, QUIET, cache=run.config.data.cache)
    candidates = [candidate for candidate in candidates if candidate.has_mask]
    chosen = choose_among(judge, candidates, labelled, count, by, QUIET).chosen
    if len(chosen) < count:
        raise UserError(f"{previous}: of the images that it has no labels for, only {len(chosen)} can be chosen.")
    file.parent.mkdir(parents=True, exist_ok=True)
    names = (*run.split.labelled, *(score.name for score in chosen))
    write_atomically(file, "".join(f"{name}\n" for name in names).encode(errors="surrogateescape"))


def _draw(cells: Sequence[Cell], columns: Sequence[str]) -> Figure:
    """Labels against mIoU: the mean of each way to choose with its standard error, and every seed as a dot."""
    figure = Figure(figsize=(5.4, 3.6), layout="constrained")
    axes = figure.subplots()
    values = {(cell.row, cell.column): cell.score for cell in cells}
    rows = list(dict.fromkeys(row for row, _ in values))
    gaps = [int(after) - int(before) for before, after in pairwise(columns)]
    for number, row in enumerate(rows):
        found = {int(columns[0]): values[RANDOM, columns[0]]} | {
            int(c): values[row, c] for c in columns if (row, c) in values
        }
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
