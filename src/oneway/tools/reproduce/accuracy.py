"""Fills a table of accuracies: trains its runs, and shows mean and deviation beside what the paper has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.console import Console
from rich.table import Table

from oneway.common.errors import UserError, unknown
from oneway.common.run_files import SUMMARY
from oneway.common.words import counted, listed, say
from oneway.config import Config, Train, build, merge, names_of, prefer_epochs
from oneway.engine.optim import total_iterations
from oneway.runs import open_run
from oneway.runs.atomic import write_atomically, write_json
from oneway.tools.reproduce.jobs import Job, train_all
from oneway.tools.reproduce.quoted import QUOTED, Quoted
from oneway.tools.reproduce.tables import TABLES, PaperTable


@dataclass(frozen=True)
class Request:
    """What a user asks of an experiment."""

    out: Path
    seeds: int = 1
    data: Path | None = None
    rows: tuple[str, ...] = ()
    """Of a table; all if none are named, and so for columns."""

    columns: tuple[str, ...] = ()
    iterations: int | None = None
    """Of every run, where not the paper's."""

    changes: dict[str, Any] = field(default_factory=dict)
    """Of every run, by section and setting."""

    side_by_side: int | None = None
    drives: tuple[str, ...] = ()
    """To hold out, of those of a yardstick; all if none are named."""

    table_only: bool = False
    """Train nothing: show what is there."""


@dataclass(frozen=True)
class Cell:
    """The runs of one method with one number of labels."""

    row: str
    column: str
    paper: str | None
    summaries: list[dict[str, Any]]
    environments: list[dict[str, Any]]
    """In which each run was trained; the table may be written by another machine."""

    other_lengths: tuple[int, ...] = ()
    """Iterations, where they are not those of the table."""

    @property
    def values(self) -> list[float]:
        """One per seed, in percent."""
        return [summary["value"] for summary in self.summaries]

    def __str__(self) -> str:
        spread = f" ± {stdev(self.values):.1f}" if len(self.values) > 1 else ""
        length = f" after {counted(self.other_lengths, 'iteration')}" if self.other_lengths else ""
        return f"{mean(self.values):.1f}{spread}{length}"

    def as_json(self) -> dict[str, Any]:
        """All that a document could claim about it, run by run."""
        kept = ("seed", "labels", "iterations", "seconds", "peak_memory_mib")
        return {
            "row": self.row,
            "column": self.column,
            "values": self.values,
            "mean": mean(self.values),
            "deviation": stdev(self.values) if len(self.values) > 1 else None,
            "paper": self.paper,
            **{key: [summary[key] for summary in self.summaries] for key in kept},
            "environment": self.environments,
        }


def fill_table(name: str, request: Request, console: Console) -> None:
    """Trains the missing runs of those asked for; prints the results of all runs, and writes them beside the runs."""
    table = TABLES[name]
    if request.drives:
        raise UserError(f"--drives {request.drives[0]}: {name} holds no drive out; leave it away.")
    if not request.table_only:
        train_all(_jobs(name, table, request), request.side_by_side or 1, console)
    cells = list(_read_cells(table, request.out))
    quoted = QUOTED.get(name, ())
    console.print(_to_rich(table, cells, quoted))
    write_results(request.out, name, cells, quoted)
    write_atomically(request.out / "table.md", to_markdown(cells, quoted, table.columns).encode())
    say(console, f"{request.out / 'results.json'} and table.md")


def _jobs(name: str, table: PaperTable, request: Request) -> list[Job]:
    cells = list(choose_cells(name, request, tuple(table.rows), table.columns))
    refuse_decided(
        {key for row in table.rows.values() for key in names_of(row.changes) - row.changes.keys()}, request.changes
    )
    return [
        Job(f"{row}, {column} labels, seed {seed}", cell_folder(request.out, row, column) / f"seed{seed}", config)
        for row, column in cells
        for seed, config in configs_of(table.config(row, column), request)
    ]


def write_results(folder: Path, name: str, cells: Sequence[Cell], quoted: Sequence[Quoted] = ()) -> None:
    """Everything about an experiment, as results.json."""
    found = {"experiment": name, "cells": [cell.as_json() for cell in cells]}
    write_json(folder / "results.json", found | ({"quoted": [row.as_json() for row in quoted]} if quoted else {}))


def read_cell(row: str, column: str, paper: str | None, folders: Iterable[Path], usual: Train | None = None) -> Cell:
    """The cell of some finished runs; `usual` are the settings that decide how long they should be."""
    runs = [open_run(folder) for folder in folders]
    found = sorted(((run.summary or {}, run.environment) for run in runs), key=lambda pair: pair[0]["seed"])
    summaries, environments = [summary for summary, _ in found], [environment for _, environment in found]
    lengths = tuple(sorted({summary["iterations"] for summary in summaries}))
    expected = lengths if usual is None else (total_iterations(usual, summaries[0]["labels"]),)
    return Cell(row, column, paper, summaries, environments, () if lengths == expected else lengths)


def _read_cells(table: PaperTable, out: Path) -> Iterator[Cell]:
    """All cells with runs in a folder: a table may be filled in parts."""
    for row, column in product(table.rows, table.columns):
        if folders := [path.parent for path in cell_folder(out, row, column).glob(f"seed*/{SUMMARY}")]:
            yield read_cell(row, column, table.paper(row, column), folders, table.config(row, column).train)


def choose_cells(
    name: str, request: Request, rows: Sequence[str], columns: Sequence[str], usual: Sequence[str] = ()
) -> Iterator[tuple[str, str]]:
    """Those that were asked for; where no row was, all of them, or the `usual` ones."""
    for kind, asked, known in (("row", request.rows, rows), ("column", request.columns, columns)):
        for one in asked:
            if one not in known:
                raise unknown(f"{kind} of {name}", one, known)
    if request.data is None:
        raise UserError(f"reproduce {name}: give the folder of the data set with --data DIR.")
    return product(dict.fromkeys(request.rows or usual or rows), dict.fromkeys(request.columns or columns))


def refuse_decided(by_table: set[str], changes: dict[str, Any]) -> None:
    """Refuses changes of what a table decides: cells would hold other runs than their row and column say."""
    decided = {"recipe", "method", "variant", "labels", "seed", "data.path"} | by_table
    if surplus := sorted(decided & names_of(changes)):
        raise UserError(f"--config: the table decides {listed(surplus)}, by row, column and seed; leave them out.")


def configs_of(config: Config, request: Request) -> Iterator[tuple[int, Config]]:
    """The seeds of a cell, and the configuration of each, with the changes that were asked for."""
    changed = build(merge(config.model_dump(), prefer_epochs(request.changes)), "reproduce")
    length = {} if request.iterations is None else {"iterations": request.iterations}
    for seed in range(request.seeds):
        yield seed, changed.changed(seed=seed, data={"path": request.data}, train=length)


def cell_folder(out: Path, row: str, column: str) -> Path:
    """Where the runs of a cell are."""
    return out / f"{row.replace(',', '').replace(' ', '-')}-{column.replace('/', 'of')}"


def _to_rich(table: PaperTable, cells: Sequence[Cell], quoted: Sequence[Quoted]) -> Table:
    caption = "In brackets: results of others, as the paper quotes them." if quoted else None
    printed = Table(title=f"{table.shows}: % on validation, last iteration, n seeds", caption=caption)
    for head in ("labels", "method", "oneway", "n", "the paper"):
        printed.add_column(head, justify="left" if head == "method" else "right")
    for column in table.columns:
        ours = [cell for cell in cells if cell.column == column]
        for cell in ours:
            printed.add_row(column, cell.row, str(cell), str(len(cell.values)), cell.paper or "–")
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
    lines = [["method", *columns], ["---"] * (1 + len(columns))]
    for row in quoted:
        found = {column: f"({value})" for column, value in row.by_column(order).items()}
        rows[f"{row.method}, {row.network}, quoted from {row.source}"] = found
    lines += [[row, *(found.get(column, "") for column in columns)] for row, found in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
