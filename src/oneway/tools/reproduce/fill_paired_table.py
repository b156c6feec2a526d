"""Fills a paired table: trains its runs, and compares each method with labels alone, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.words import listed, say
from oneway.runs.atomic import write_atomically, write_json
from oneway.tools.reproduce.figures import draw_settings
from oneway.tools.reproduce.jobs import train_all
from oneway.tools.reproduce.paired_cells import PairedCell, measure
from oneway.tools.reproduce.paired_output import to_markdown, to_rich
from oneway.tools.reproduce.paired_tables import PAIRED_TABLES
from oneway.tools.reproduce.requests import Request, jobs_of
from oneway.tools.reproduce.results import Runs, read_runs, runs_as_json
from oneway.tools.reproduce.tables import RunTable


def fill_paired_table(name: str, request: Request, console: Console) -> None:
    """Trains the missing runs of those asked for; prints the results of all runs, and writes them beside the runs."""
    table = PAIRED_TABLES[name]
    if not request.table_only:
        train_all(jobs_of(name, table, request), request.side_by_side or 1, console)
    runs = read_runs(request.out, table.rows, table.columns, table.parts)
    if not runs:
        raise UserError(f"{request.out}: no run of {name} has ended there.")
    cells = _measure_all(table, runs, table.parts)
    by_drive = {drive: _measure_all(table, runs, (drive,)) for drive in table.drives}
    shown = {"": cells} if cells else by_drive  # until a seed has all its drives
    for drive, found in shown.items():
        if found:
            console.print(to_rich(table, found, f"{table.shows}{f', {drive}' if drive else ''}"))
    results = {
        "experiment": name,
        "cells": [cell.as_json() for cell in cells],
        "by_drive": {drive: [cell.as_json() for cell in found] for drive, found in by_drive.items()},
        "runs": runs_as_json(runs),
    }
    write_json(request.out / "results.json", results)
    write_atomically(request.out / "table.md", to_markdown(table, cells, by_drive).encode())
    say(console, f"{request.out / 'results.json'} and table.md")
    if drawn := draw_settings(request.out, cells):
        say(console, f"Figures, as .png and .svg: {listed(drawn, most=None)}")


def _measure_all(table: RunTable, runs: Runs, drives: Sequence[str]) -> list[PairedCell]:
    cells = [measure(runs, row, column, table.columns[-1], drives) for row, column in runs]
    return [cell for cell in cells if cell is not None]
