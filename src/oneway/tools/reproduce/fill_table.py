"""Fills a table of accuracies: trains its runs, and shows mean and deviation beside what the paper has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from oneway.common.errors import UserError
from oneway.common.words import counted, say
from oneway.engine.optim import total_iterations
from oneway.runs.atomic import write_atomically, write_json
from oneway.tools.reproduce.jobs import train_all
from oneway.tools.reproduce.quoted import QUOTED, Quoted
from oneway.tools.reproduce.requests import Request, jobs_of
from oneway.tools.reproduce.results import Mean, Trained, markdown_table, read_runs
from oneway.tools.reproduce.tables import TABLES, RunTable


@dataclass(frozen=True)
class Cell:
    """The runs of one method with one number of labels, by seed."""

    row: str
    column: str
    runs: Sequence[Trained]
    paper: str | None = None
    usual_length: int | None = None
    """Iterations that the table's runs have."""

    @property
    def score(self) -> Mean:
        """In percent."""
        return Mean({run.config.seed: run.summary["value"] for run in self.runs})

    def __str__(self) -> str:
        lengths = sorted({run.summary["iterations"] for run in self.runs})
        length = f" after {counted(lengths, 'iteration')}" if lengths != [self.usual_length] else ""
        return f"{self.score}{length}"

    def as_json(self) -> dict[str, Any]:
        """All that a document could claim about it, run by run."""
        kept = ("seed", "labels", "iterations", "seconds", "peak_memory_mib")
        return {
            "row": self.row,
            "column": self.column,
            "values": list(self.score.by_seed.values()),
            "mean": self.score.mean,
            "deviation": self.score.deviation,
            "paper": self.paper,
            **{key: [run.summary[key] for run in self.runs] for key in kept},
            "environment": [run.environment for run in self.runs],
        }


def fill_table(name: str, request: Request, console: Console) -> None:
    """Trains the missing runs of those asked for; prints the results of all runs, and writes them beside the runs."""
    table = TABLES[name]
    if not request.table_only:
        train_all(jobs_of(name, table, request), request.side_by_side or 1, console)
    cells = _read_cells(table, request.out)
    if not cells:
        raise UserError(f"{request.out}: no run of {name} has ended there.")
    quoted = QUOTED.get(name, ())
    console.print(_to_rich(table, cells, quoted))
    write_results(request.out, name, cells, quoted)
    write_atomically(request.out / "table.md", to_markdown(cells, quoted, table.columns).encode())
    say(console, f"{request.out / 'results.json'} and table.md")


def write_results(folder: Path, name: str, cells: Sequence[Cell], quoted: Sequence[Quoted] = ()) -> None:
    """Everything about an experiment, as results.json."""
    found = {"experiment": name, "cells": [cell.as_json() for cell in cells]}
    write_json(folder / "results.json", found | ({"quoted": [asdict(row) for row in quoted]} if quoted else {}))


def _read_cells(table: RunTable, out: Path) -> list[Cell]:
    """All cells with runs in a folder."""
    cells = []
    for (row, column), found in read_runs(out, table.rows, table.columns).items():
        runs = list(found.values())
        usual = total_iterations(table.config(row, column).train, runs[0].summary["labels"])
        cells.append(Cell(row, column, runs, table.paper(row, column), usual))
    return cells


def _to_rich(table: RunTable, cells: Sequence[Cell], quoted: Sequence[Quoted]) -> Table:
    caption = "In brackets: results of others, as the paper quotes them." if quoted else None
    printed = Table(title=f"{table.shows}: % on validation, last iteration, n seeds", caption=caption)
    for head in ("labels", "method", "oneway", "n", "the paper"):
        printed.add_column(head, justify="left" if head == "method" else "right")
    for column in table.columns:
        ours = [cell for cell in cells if cell.column == column]
        for cell in ours:
            printed.add_row(column, cell.row, str(cell), str(len(cell.runs)), cell.paper or "–")
        for row in quoted if ours else ():
            if value := row.by_column(table.columns).get(column):
                printed.add_row(column, f"{row.method}, {row.network} ({row.source})", "", "", f"({value})")
    return printed


def to_markdown(cells: Sequence[Cell], quoted: Sequence[Quoted] = (), order: tuple[str, ...] = ()) -> str:
    """A row for each method, a column for each number of labels, the paper's results in brackets.

    Rows that are quoted follow, for the columns that have a cell; `order` is that of their values.
    """
    columns = list(dict.fromkeys(cell.column for cell in cells))
    rows: dict[str, dict[str, str]] = {}
    for cell in cells:
        rows.setdefault(cell.row, {})[cell.column] = f"{cell}" + (f" ({cell.paper})" if cell.paper else "")
    for row in quoted:
        found = {column: f"({value})" for column, value in row.by_column(order).items()}
        rows[f"{row.method}, {row.network}, quoted from {row.source}"] = found
    return markdown_table("method", columns, rows)
