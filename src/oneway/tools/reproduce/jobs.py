"""The runs of an experiment: what a user asks for, and how those that are missing are trained, side by side or not."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import product
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from rich.console import Console

from oneway.common import console as printing
from oneway.common.errors import UserError, unknown
from oneway.common.run_files import CONFIG
from oneway.common.threads import count_cores
from oneway.common.words import command, counted, listed, say
from oneway.config import Config, Data, build, merge, names_of, unset_alternatives
from oneway.data import list_files
from oneway.tools.reproduce.tables import RunTable
from oneway.tools.train import train


@dataclass(frozen=True)
class Job:
    """A run to train."""

    name: str
    folder: Path
    config: Config
    after: Path | None = None
    """The folder of another job that has to end first."""

    prepare: Callable[[], None] | None = None
    """Called just before training, in the same process."""


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

    over: str | None = None
    """The row of a paired table with which the others are compared; labels alone if none is named."""

    table_only: bool = False
    """Whether to train nothing, and show the runs that are there."""


def jobs_of(name: str, table: RunTable, request: Request) -> list[Job]:
    """The runs asked for, seed by seed, so that what has ended early makes a table of few seeds."""
    for one in request.columns:
        if one not in table.columns:
            raise _unknown_column(name, table, one, request)
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


def _unknown_column(name: str, table: RunTable, column: str, request: Request) -> UserError:
    if "/" not in column and not Path(column).is_file():
        return unknown(f"column of {name}", column, table.columns)
    data = () if request.data is None else ("--data", request.data)
    train = command("oneway", "train", table.recipe, *data, "--labels", column, "--compare", "--out", "RUN")
    return UserError(
        f"--labels {column}: columns of {name} are {listed(table.columns, None)}; which images these are is drawn by "
        f"seed. To train with a list or another share: `{train}`. `oneway report RUN RUN` compares such runs."
    )


def check_request(
    name: str,
    request: Request,
    rows: Collection[str],
    drives: Collection[str] = (),
    decided: Collection[str] = (),
) -> None:
    """Refuse what there is not, and changes of what a table decides: cells would hold other runs than they say."""
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


def train_all(jobs: Sequence[Job], side_by_side: int, console: Console) -> None:
    """Train all runs, as many at once as `side_by_side`: ended ones are skipped, and stopped ones continued.

    They start in their order, except that a run which waits for another lets those behind it pass.

    Raises:
        UserError: No image would validate, and the runs could not be compared.
    """
    for job in jobs[:1]:  # the others read the same folder
        require_validation(job.config.data)
    processes = min(len(jobs), side_by_side)
    threads = max(1, count_cores() // processes)
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])  # what a run needs is loaded once, and not by every process
    waiting = list(jobs)
    ended: set[Path] = set()
    with ProcessPoolExecutor(
        processes,
        mp_context=context,
        initializer=_begin,
        initargs=(threads,),
        max_tasks_per_child=1,  # a process counts the most memory that it ever had
    ) as pool:
        # One after another they may show how they get on; side by side they would talk at once.
        quiet = console.quiet or processes > 1
        running: dict[Future[dict[str, Any]], Job] = {}
        while waiting or running:
            ready = [job for job in waiting if job.after is None or job.after in ended]
            begun = ready[: processes - len(running)]
            waiting = [job for job in waiting if job not in begun]
            running |= {pool.submit(_train, job, quiet): job for job in begun}
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                summary = future.result()
                ended.add(job.folder)
                which = f"{len(ended)} of {counted(len(jobs), 'run')}"
                say(console, f"{which}: {job.name}  {summary['value']:.1f} %  {summary['seconds']:,.0f} s")


def require_validation(settings: Data) -> None:
    """Refuse a folder in which no image validates: runs would have no score."""
    if settings.name == "folder" and not settings.holdout and not (found := list_files(settings)).val:
        raise UserError(
            f"{found.root}: no image validates (data.holdout 0), and runs could not be compared. Leave data.holdout "
            "out of --config, or give the folder a validation set."
        )


def _begin(threads: int) -> None:
    """Prepare a process that trains a run."""
    torch.set_num_threads(threads)
    Thread(target=_stop_with_parent, name="parent", daemon=True).start()


def _stop_with_parent() -> None:
    """Stop a run, as `kill` would, when what has started it was killed: it would train on unseen, for hours."""
    if (parent := parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _train(job: Job, quiet: bool) -> dict[str, Any]:
    resume = (job.folder / CONFIG).is_file()
    if job.prepare is not None:
        job.prepare()
    return train(job.config, job.folder, resume, printing.Console(quiet=quiet))
