"""Fills a table: trains its runs, and writes and prints them beside the paper's, or beside labels alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from oneway.common.errors import UserError, unknown
from oneway.common.run_files import SUMMARY
from oneway.common.words import command, counted, listed, say
from oneway.runs.atomic import write_atomically, write_json
from oneway.tools.baseline import BASELINE
from oneway.tools.evaluate import METRIC_NAMES
from oneway.tools.report.facts import RUN_COLOURS
from oneway.tools.reproduce.figures import draw_settings
from oneway.tools.reproduce.jobs import Request, cell_folder, jobs_of, train_all
from oneway.tools.reproduce.paired_tables import ALL_TABLES
from oneway.tools.reproduce.results import Cell, Runs, measure_all, read_runs, runs_as_json
from oneway.tools.reproduce.tables import RunTable

Lines = Sequence[Sequence[str]]
"""The lines of a table, the first of them its heads."""


def fill_table(name: str, request: Request, console: Console) -> None:
    """Train the missing runs of those asked for; prints the results of all runs, and writes them beside the runs."""
    table = with_columns(ALL_TABLES[name], request)
    if request.over is not None and request.over not in table.rows:
        raise unknown(f"row of {name}", request.over, table.rows)
    table = replace(table, over=request.over or table.over)
    if not request.table_only:
        train_all(jobs_of(name, table, request), request.side_by_side or 1, console)
    runs = read_runs(request.out, table.rows, table.columns, table.parts)
    if not runs:
        raise UserError(f"{request.out}: no run of {name} has ended there.")
    baseline = table.over if table.paired else ""
    all_labels = table.columns[-1] if baseline == BASELINE else ""
    cells = measure_all(runs, baseline, all_labels, table.parts)
    by_drive = {drive: measure_all(runs, baseline, all_labels, (drive,)) for drive in table.drives}
    shown = {"": cells} if cells else by_drive  # until a seed has all its drives
    for drive, found in shown.items():
        if found:
            console.print(to_rich(table, found, drive))
    results = {
        "experiment": name,
        **({"over": table.over} if table.paired else {}),
        "cells": [cell.as_json() | {"paper": table.paper(cell.row, cell.column)} for cell in cells],
        "by_drive": {drive: [cell.as_json() for cell in found] for drive, found in by_drive.items()},
        "quoted": [asdict(row) for row in table.quoted],
        "runs": runs_as_json(runs),
    }
    write_json(request.out / "results.json", results)
    write_atomically(request.out / "table.md", to_markdown(table, cells, by_drive).encode())
    say(console, f"{request.out / 'results.json'} and table.md")
    if left_out := cells_of_others(table, request.out):
        rows = f"Rows of methods that only the program that trained them knows are left out: {listed(left_out)}"
        say(console, f"Note: {rows}. Use that program in the place of `oneway`.")
    if table.over == BASELINE and (drawn := draw_settings(request.out, cells)):
        say(console, f"Figures, as .png and .svg: {listed(drawn, most=None)}")
    say(console, f"A page about runs with the same labels: {report_command(request.out, runs)}")


def with_columns(table: RunTable, request: Request) -> RunTable:
    """A paired table with columns for further numbers of labels, which are asked for or whose runs are there."""
    there = (folder.name.rpartition("-")[2] for folder in request.out.glob("*-*"))
    further = [column for column in (*request.columns, *there) if re.fullmatch("[1-9][0-9]{0,8}", column)]
    if not table.paired:
        return table
    *numbers, whole = table.columns
    columns = sorted({*numbers, *further}, key=int)
    return replace(table, columns=(*columns, whole), usual_columns=table.usual_columns or table.columns)


def cells_of_others(table: RunTable, out: Path) -> list[str]:
    """Folders with runs that have ended and are of no row of this table."""
    ours = {cell_folder(out, row, column) for row in table.rows for column in table.columns}
    ended = {file.relative_to(out).parts[0] for file in out.glob(f"*-*/**/seed*/{SUMMARY}")}
    return sorted(name for name in ended if out / name not in ours)


def report_command(out: Path, runs: Runs) -> str:
    """The command that writes a page about runs of one column with one seed, as many as have a colour there."""
    groups: dict[tuple[str, str, int], list[Path]] = {}
    for (row, column), found in runs.items():
        for drive, seed in found:
            folder = cell_folder(out, row, column) / drive / f"seed{seed}"
            groups.setdefault((column, drive, seed), []).append(folder)
    return command("oneway", "report", *max(groups.values(), key=len)[:RUN_COLOURS])


def to_rich(table: RunTable, cells: Sequence[Cell], drive: str) -> Table:
    """A line for each cell, those of one number of labels together, then what is quoted for it."""
    beside: tuple[str, ...] = ("the paper",) if table.published else ()
    if table.paired:
        beside = (f"over {table.over}", "n", *(("distance closed",) if table.over == BASELINE else ()))
    lines: list[Sequence[str]] = [("method", "labels", "in %", "n", *beside)]
    for column in table.columns:
        ours = [cell for cell in cells if cell.column == column]
        for cell in ours:
            over, paper = cell.difference, table.paper(cell.row, column) or "–"
            paired = ("", "") if over is None else (over.with_error("+"), str(len(over.by_seed)))
            more = (*paired, _percent(cell.closed)) if table.paired else (paper,)
            lines.append((cell.row, column, _score(table, cell), str(len(cell.score.by_seed)), *more[: len(beside)]))
        for row in table.quoted if ours else ():
            if value := row.by_column(table.columns).get(column):
                source = row.source.replace("; ", ";\n")
                lines.append((f"{row.method}, {row.network}\n({source})", column, "", "", f"({value})"))
    described = replace(table, drives=()) if drive else table
    return as_rich(lines, table.shows + (f", {drive}" if drive else ""), _describe(described, cells, terminal=True))


def to_markdown(table: RunTable, cells: Sequence[Cell], by_drive: Mapping[str, Sequence[Cell]]) -> str:
    """The table of all methods, then what is quoted; the distance to all labels, and a table for each drive."""
    everything = [*cells, *(cell for found in by_drive.values() for cell in found)]
    parts = [f"{table.shows}.", _describe(table, everything)]
    parts.append(_scores(table, cells) if cells else "No seed has been trained with every drive held out.")
    if any(cell.distance for cell in cells):
        parts += [
            f"Points from `{BASELINE}` to `{BASELINE}` with all labels, ± standard error; below, the share of that "
            "distance that unlabelled images close.",
            as_markdown(grid(cells, table.columns[:-1], _distance)),
        ]
    for drive, found in by_drive.items():
        if found:
            parts += [f"{drive} held out:", _scores(table, found)]
    return "\n".join(f"{part.rstrip()}\n" for part in parts)


def _describe(table: RunTable, cells: Sequence[Cell], terminal: bool = False) -> str:
    """How to read the numbers; on a terminal, what the paper has is no bracket but a column."""
    seeds = counted(sorted({len(cell.score.by_seed) for cell in cells}), "seed", joint=" or ")
    metric = METRIC_NAMES[cells[0].runs[0].summary["metric"]]
    scores = f"Validation {metric} in percent, last iteration, mean ± sample deviation over {seeds}."
    if not table.paired:
        theirs = ["the paper's"] if table.published and not terminal else []
        theirs += ["results of others, as the paper quotes them"] if table.quoted else []
        return f"{scores} In brackets: {', and '.join(theirs)}." if theirs else scores
    same = f"seed and drive, the mean over {listed(table.drives, most=None)}" if table.drives else "seed"
    folds = " Each drive is held out in turn; a seed's value is the mean over them." if table.drives else ""
    return (
        f"{scores}{folds} Signed: the difference to `{table.over}` of the same {same}, ± its standard error over seeds."
    )


def _scores(table: RunTable, cells: Sequence[Cell]) -> str:
    most = max(len(cell.score.by_seed) for cell in cells)

    def write(cell: Cell) -> str:
        paper = table.paper(cell.row, cell.column)
        return with_difference(cell, most, _score(table, cell)) + (f" ({paper})" if paper else "")

    lines = [*grid(cells, table.columns, write)]
    known = [column for column in table.columns if any(cell.column == column for cell in cells)]
    for row in table.quoted:
        values = row.by_column(table.columns)
        texts = (f"({values[column]})" if column in values else "" for column in known)
        lines.append([f"{row.method}, {row.network}, quoted from {row.source}", *texts])
    return as_markdown(lines)


def _score(table: RunTable, cell: Cell) -> str:
    """Mean and deviation; the length of its runs, where that is not the table's."""
    usual = table.length_of(cell.row, cell.column, cell.runs[0].summary["labels"])
    return f"{cell.score}" + (f" after {counted(cell.lengths, 'iteration')}" if cell.lengths != [usual] else "")


def with_difference(cell: Cell, most: int, score: str = "") -> str:
    """A score, the difference to the baseline in brackets, and the number of seeds where it is less than `most`."""
    over = f" ({cell.difference.with_error('+')})" if cell.difference else ""
    seeds = len(cell.score.by_seed)
    return f"{score or cell.score}{over}" + (f" n = {seeds}" if seeds < most else "")


def grid(cells: Sequence[Cell], columns: Sequence[str], write: Callable[[Cell], str], head: str = "method") -> Lines:
    """A row for each method, a column for each number of labels that has a cell."""
    written = {(cell.row, cell.column): write(cell) for cell in cells if cell.column in columns}
    rows, known = (dict.fromkeys(place[side] for place in written) for side in (0, 1))
    shown = [column for column in columns if column in known]
    lines = [[f"`{row}`", *(written.get((row, column), "") for column in shown)] for row in rows]
    return [[head, *(f"{column} labels" for column in shown)], *lines]


def as_markdown(lines: Lines) -> str:
    """A table whose first line is its head."""
    head, *rows = lines
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *rows))


def as_rich(lines: Lines, title: str, caption: str) -> Table:
    """A table for a terminal. Names are whole in a narrow one too: they are what the next command is given."""
    (first, *others), *rows = lines
    printed = Table(title=title, caption=caption)
    printed.add_column(first, no_wrap=True)
    for head in others:
        printed.add_column(head, justify="right")
    for row in rows:
        printed.add_row(*row)
    return printed


def _distance(cell: Cell) -> str:
    """The distance from labels alone to all labels, or the share of it that a method closes."""
    if cell.row != BASELINE:
        return _percent(cell.closed)
    return "" if cell.distance is None else cell.distance.with_error()


def _percent(share: float | None) -> str:
    return "" if share is None else f"{round(100 * share)} %"
