"""What a user asks of an experiment, and the runs that it takes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from oneway.common.errors import UserError, unknown
from oneway.common.words import listed
from oneway.config import Config, build, merge, names_of, unset_alternatives
from oneway.tools.reproduce.jobs import Job
from oneway.tools.reproduce.tables import RunTable


@dataclass(frozen=True)
class Request:
    """What a user asks of an experiment."""

    out: Path
    seeds: int = 1
    data: Path | None = None
    rows: tuple[str, ...] = ()
    """Rows of the table; the usual ones if none are named. Likewise `columns`."""

    columns: tuple[str, ...] = ()
    iterations: int | None = None
    """Length of every run, where not the table's."""

    changes: dict[str, Any] = field(default_factory=dict)
    """Settings of every run, by section."""

    side_by_side: int | None = None
    drives: tuple[str, ...] = ()
    """Drives to hold out; all of the table's if none are named."""

    table_only: bool = False
    """Whether to train nothing, and show the runs that are there."""


def jobs_of(name: str, table: RunTable, request: Request) -> list[Job]:
    """The runs asked for, seed by seed, so that what has ended early makes a table of few seeds."""
    for one in request.columns:
        if one not in table.columns:
            raise unknown(f"column of {name}", one, table.columns)
    decided = {key for row in table.rows.values() for key in names_of(row.changes) - row.changes.keys()}
    check_request(name, request, table.rows, table.drives, decided)
    rows = dict.fromkeys(request.rows or table.usual_rows or table.rows)
    columns = dict.fromkeys(request.columns or table.usual_columns or table.columns)
    drives = dict.fromkeys(request.drives or table.parts)
    return [
        Job(
            f"{row}, {column} labels, {f'{drive} held out, ' if drive else ''}seed {seed}",
            cell_folder(request.out, row, column) / drive / f"seed{seed}",
            run_config(table.config(row, column, drive), seed, request),
        )
        for seed, row, column, drive in product(range(request.seeds), rows, columns, drives)
    ]


def check_request(
    name: str,
    request: Request,
    rows: Collection[str],
    drives: Collection[str] = (),
    decided: Collection[str] = (),
) -> None:
    """Refuses what there is not, and changes of what a table decides: cells would hold other runs than they say."""
    for row in request.rows:
        if row not in rows:
            raise unknown(f"row of {name}", row, rows)
    for drive in request.drives:
        if not drives:
            raise UserError(f"--drives {drive}: {name} holds no drive out; leave it out.")
        if drive not in drives:
            raise unknown(f"drive of {name}", drive, drives)
    if request.data is None:
        raise UserError(f"reproduce {name}: give the folder of the data set with --data DIR.")
    always = {"recipe", "method", "variant", "labels", "seed", "data.path", "data.holdout_drive"}
    if surplus := sorted((always | {*decided}) & names_of(request.changes)):
        raise UserError(f"--config: the table decides {listed(surplus)}, by row, column and seed; leave them out.")


def run_config(config: Config, seed: int, request: Request) -> Config:
    """A cell's configuration for a seed, with the changes that were asked for."""
    changed = build(merge(config.model_dump(), unset_alternatives(request.changes)), "reproduce")
    length = {} if request.iterations is None else {"iterations": request.iterations}
    return changed.changed(seed=seed, data={"path": request.data}, train=length)


def cell_folder(out: Path, row: str, column: str) -> Path:
    """Where the runs of a cell are."""
    return out / f"{row.replace(',', '').replace(' ', '-')}-{column.replace('/', 'of')}"
