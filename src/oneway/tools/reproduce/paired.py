"""Fills a yardstick: trains its runs, and sets each method beside labels alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from oneway.common.errors import UserError, unknown
from oneway.common.run_files import SUMMARY
from oneway.common.words import listed, say
from oneway.config import names_of
from oneway.runs import open_run
from oneway.runs.atomic import write_atomically, write_json
from oneway.tools.reproduce.accuracy import Request, cell_folder, choose_cells, configs_of, refuse_decided
from oneway.tools.reproduce.figures import draw_settings
from oneway.tools.reproduce.jobs import Job, train_all
from oneway.tools.reproduce.pair_tables import to_markdown, to_rich
from oneway.tools.reproduce.pairs import Cell, Runs, Trained, measure
from oneway.tools.reproduce.yardsticks import YARDSTICKS, Yardstick


def fill_yardstick(name: str, request: Request, console: Console) -> None:
    """Trains the missing runs of those asked for; prints the results of all runs, and writes them beside the runs."""
    yardstick = YARDSTICKS[name]
    if not request.table_only:
        train_all(_jobs(name, yardstick, request), request.side_by_side or 1, console)
    runs = _read_runs(yardstick, request.out)
    if not runs:
        raise UserError(f"{request.out}: no run of {name} has ended there.")
    cells = _measure_all(yardstick, runs, yardstick.parts)
    by_drive = {drive: _measure_all(yardstick, runs, (drive,)) for drive in yardstick.drives}
    shown = {"": cells} if cells else by_drive  # until a seed has all its drives
    for drive, found in shown.items():
        if found:
            console.print(to_rich(yardstick, found, f"{yardstick.shows}{f', {drive}' if drive else ''}"))
    write_json(request.out / "results.json", _to_json(name, runs, cells, by_drive))
    write_atomically(request.out / "table.md", to_markdown(yardstick, cells, by_drive).encode())
    say(console, f"{request.out / 'results.json'} and table.md")
    if yardstick.settings is not None and cells:
        say(console, f"Figures, as .png and .svg: {listed(draw_settings(request.out, cells), most=None)}")


def _jobs(name: str, yardstick: Yardstick, request: Request) -> list[Job]:
    """Seed by seed, so that what has ended early makes a table of few seeds."""
    for drive in request.drives:
        if not yardstick.drives:
            raise UserError(f"--drives {drive}: {name} has a validation set, and no drives; leave it out.")
        if drive not in yardstick.drives:
            raise unknown(f"drive of {name}", drive, yardstick.drives)
    usual = replace(request, columns=request.columns or yardstick.usual_columns)
    cells = list(choose_cells(name, usual, tuple(yardstick.rows), yardstick.columns, yardstick.usual))
    decided = {key for row in yardstick.rows.values() for key in names_of(row.changes) - row.changes.keys()}
    refuse_decided({"data.holdout_drive"} | decided, request.changes)
    drives = request.drives or yardstick.parts
    jobs = [
        (seed, Job(_title(row, column, drive, seed), _folder(request.out, row, column, drive) / f"seed{seed}", config))
        for (row, column), drive in product(cells, dict.fromkeys(drives))
        for seed, config in configs_of(yardstick.config(row, column, drive), request)
    ]
    return [job for _, job in sorted(jobs, key=lambda pair: pair[0])]


def _title(row: str, column: str, drive: str, seed: int) -> str:
    return f"{row}, {column} labels, {f'{drive} held out, ' if drive else ''}seed {seed}"


def _folder(out: Path, row: str, column: str, drive: str) -> Path:
    return cell_folder(out, row, column) / drive


def _read_runs(yardstick: Yardstick, out: Path) -> Runs:
    """All runs that have ended in a folder: a yardstick may be filled in parts."""
    found: dict[tuple[str, str], dict[tuple[str, int], Trained]] = {}
    for row, column, drive in product(yardstick.rows, yardstick.columns, yardstick.parts):
        for file in sorted(_folder(out, row, column, drive).glob(f"seed*/{SUMMARY}")):
            run = open_run(file.parent)
            trained = Trained(drive, run.config, run.summary or {}, run.environment)
            found.setdefault((row, column), {})[drive, run.config.seed] = trained
    return found


def _measure_all(yardstick: Yardstick, runs: Runs, drives: Sequence[str]) -> list[Cell]:
    cells = [measure(runs, row, column, yardstick.columns[-1], drives) for row, column in runs]
    return [cell for cell in cells if cell.score is not None]


def _to_json(name: str, runs: Runs, cells: Sequence[Cell], by_drive: dict[str, list[Cell]]) -> dict[str, Any]:
    """Everything about a yardstick: the cells, and run by run what they rest on."""
    return {
        "experiment": name,
        "cells": [cell.as_json() for cell in cells],
        "by_drive": {drive: [cell.as_json() for cell in found] for drive, found in by_drive.items()},
        "runs": [
            {"row": row, "column": column, **run.as_json()}
            for (row, column), found in runs.items()
            for run in found.values()
        ],
    }
