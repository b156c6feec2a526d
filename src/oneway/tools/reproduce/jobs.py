"""The runs of an experiment: trained where they are missing, several side by side where that is faster."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from oneway.common import console as printing
from oneway.common.errors import UserError
from oneway.common.run_files import CONFIG
from oneway.common.words import say
from oneway.config import Config, Data
from oneway.data import list_files
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


def train_all(jobs: Sequence[Job], side_by_side: int, console: Console) -> None:
    """Trains all runs, as many at once as `side_by_side`: ended ones are skipped, and stopped ones continued.

    They start in their order, except that a run which waits for another lets those behind it pass.

    Raises:
        UserError: No image would validate, and the runs could not be compared.
    """
    for job in jobs[:1]:  # the others read the same folder
        require_validation(job.config.data)
    processes = min(len(jobs), side_by_side)
    threads = max(1, count_cores() // processes)
    context = get_context("forkserver")
    context.set_forkserver_preload(["oneway.tools.train"])  # PyTorch is loaded once, and not by every process
    waiting = list(jobs)
    ended: set[Path] = set()
    with ProcessPoolExecutor(
        processes,
        mp_context=context,
        initializer=torch.set_num_threads,
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
                say(console, f"{job.name}  {summary['value']:.1f} %  {summary['seconds']:,.0f} s")


def require_validation(settings: Data) -> None:
    """Refuses a folder in which no image validates: runs would have no score."""
    if settings.name == "folder" and not settings.holdout and not (found := list_files(settings)).val:
        raise UserError(
            f"{found.root}: no image validates (data.holdout 0), and runs could not be compared. Leave data.holdout "
            "out of --config, or give the folder a validation set."
        )


def _train(job: Job, quiet: bool) -> dict[str, Any]:
    resume = (job.folder / CONFIG).is_file()
    if job.prepare is not None:
        job.prepare()
    return train(job.config, job.folder, resume, printing.Console(quiet=quiet))


def count_cores() -> int:
    """Cores this process may use, which a container can make fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
