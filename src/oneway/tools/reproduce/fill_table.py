"""Fills a table: trains its runs, and shows them beside the paper's, or beside labels alone, seed by seed."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.words import listed, say
from oneway.runs.atomic import write_atomically, write_json
from oneway.tools.baseline import BASELINE
from oneway.tools.reproduce.cells import measure_all
from oneway.tools.reproduce.figures import draw_settings
from oneway.tools.reproduce.jobs import train_all
from oneway.tools.reproduce.output import to_markdown, to_rich
from oneway.tools.reproduce.paired_tables import ALL_TABLES
from oneway.tools.reproduce.quoted import QUOTED
from oneway.tools.reproduce.requests import Request, jobs_of
from oneway.tools.reproduce.results import read_runs, runs_as_json


def fill_table(name: str, request: Request, console: Console) -> None:
    """Trains the missing runs of those asked for; prints the results of all runs, and writes them beside the runs."""
    table, quoted = ALL_TABLES[name], QUOTED.get(name, ())
    if not request.table_only:
        train_all(jobs_of(name, table, request), request.side_by_side or 1, console)
    runs = read_runs(request.out, table.rows, table.columns, table.parts)
    if not runs:
        raise UserError(f"{request.out}: no run of {name} has ended there.")
    baseline, all_labels = (BASELINE, table.columns[-1]) if table.paired else ("", "")
    cells = measure_all(runs, baseline, all_labels, table.parts)
    by_drive = {drive: measure_all(runs, baseline, all_labels, (drive,)) for drive in table.drives}
    shown = {"": cells} if cells else by_drive  # until a seed has all its drives
    for drive, found in shown.items():
        if found:
            console.print(to_rich(table, found, quoted, drive))
    results = {
        "experiment": name,
        "cells": [cell.as_json() | {"paper": table.paper(cell.row, cell.column)} for cell in cells],
        "by_drive": {drive: [cell.as_json() for cell in found] for drive, found in by_drive.items()},
        "quoted": [asdict(row) for row in quoted],
        "runs": runs_as_json(runs),
    }
    write_json(request.out / "results.json", results)
    write_atomically(request.out / "table.md", to_markdown(table, cells, by_drive, quoted).encode())
    say(console, f"{request.out / 'results.json'} and table.md")
    if drawn := draw_settings(request.out, cells):
        say(console, f"Figures, as .png and .svg: {listed(drawn, most=None)}")
