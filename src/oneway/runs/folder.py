"""The run folder: started once, by one process, and read by many.

A folder may come from anywhere: a damaged or hostile file is a UserError that names it.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from oneway.common.errors import UserError, missing
from oneway.common.links import SUFFIX, open_descriptor, refuse_link
from oneway.common.run_files import (
    CHANGES,
    CONFIG,
    ENVIRONMENT,
    METRICS,
    MODEL,
    SPLIT,
    SUMMARY,
    TRACEBACK,
    VALIDATION,
    describe_exported,
)
from oneway.common.words import command, listed, say
from oneway.config import Config, Data
from oneway.config.conflicts import EMBEDDED
from oneway.data.pool import is_pool
from oneway.data.splits import Split
from oneway.runs import atomic, checkpoint, lock, records
from oneway.runs.atomic import write_atomically, write_json
from oneway.runs.environment import begin_stretches, environment_of
from oneway.runs.reading import is_there, list_names, reading
from oneway.runs.settings import read_settings


@dataclass(frozen=True, repr=False)
class Run:
    """A run folder and its configuration. Other files are read on demand."""

    path: Path
    config: Config
    held: lock.Held | None = None
    """The lock of the folder, in the process that trains the run."""

    def __repr__(self) -> str:
        """Where it is; a notebook would show every setting."""
        return f"Run({str(self.path)!r})"

    def __fspath__(self) -> str:
        """Its folder, for functions that take one."""
        return str(self.path)

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoint"

    @property
    def model_file(self) -> Path:
        """The file of the trained model, which exists once the run has ended."""
        return refuse_link(self.path / MODEL)

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, hardware, commit and command."""
        return records.read(self.path / ENVIRONMENT, records.Environment)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The result, once the run has ended."""
        file = self.path / SUMMARY
        return records.read(file, records.Summary) if is_there(file) else None

    @property
    def changes(self) -> list[str]:
        """Changes of settings since the run was started, as messages."""
        file = self.path / CHANGES
        return list(records.read(file, records.Changes)["changes"]) if is_there(file) else []

    @property
    def split(self) -> Split:
        """The images that the run was started with."""
        return records.read_split(self.path / SPLIT)

    @property
    def validation(self) -> list[dict[str, Any]]:
        """What its model made of each validation image (`records.ImageCounts`); nothing where that was not kept."""
        file = self.path / VALIDATION
        return records.read_validation(file) if is_there(file) else []

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, in order."""
        file = self.path / METRICS
        return records.refuse_damaged(records.read_log(file), file)

    def require(self) -> None:
        """Refuse to write if the folder was renamed, removed or replaced since it was locked."""
        if self.held is not None:
            self.held.require()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Check the lock before the block; and again if writing fails, since the folder may be gone by then."""
        self.require()
        try:
            yield
        except UserError:
            self.require()
            raise

    def log(self, **values: Any) -> None:
        """Add a line to `metrics.jsonl`."""
        file = self.path / METRICS
        line = (json.dumps(values, allow_nan=False) + "\n").encode()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        with self._writing():
            try:
                with open_descriptor(file, flags) as descriptor:
                    if os.write(descriptor, line) < len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                raise atomic.cannot_write(file, len(line), error) from error

    def metrics_until(self, iteration: int) -> list[dict[str, Any]]:
        """The lines up to an iteration: without those that a killed run logged after its last checkpoint."""
        file = self.path / METRICS
        lines = records.read_log(file)
        while lines and (isinstance(last := lines[-1], str) or last["iteration"] > iteration):
            lines.pop()
        return [line for line in records.refuse_damaged(lines, file) if line["iteration"] <= iteration]

    def write_lines(self, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write a file of the folder with JSON in each line."""
        with self._writing():
            write_atomically(self.path / name, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def write(self, name: str, values: Any) -> None:
        """Write a JSON file of the folder."""
        with self._writing():
            write_json(self.path / name, values)

    def write_settings(self, split: Split) -> None:
        """Write the split, and last the configuration: where there is one, the run has been started."""
        with self._writing():
            write_atomically(self.path / SPLIT, split.to_json().encode())
            write_atomically(self.path / CONFIG, self.config.to_yaml().encode())


@dataclass(frozen=True)
class ModelAlone(Run):
    """A model's file without its run: of the images that taught it, nothing is known."""

    @property
    def model_file(self) -> Path:
        return self.path

    @property
    def split(self) -> Split:
        return Split((), ())


def refuse_occupied(path: Path) -> None:
    """Refuse a folder with anything in it for a new run: nothing is ever overwritten."""
    if is_there(path / CONFIG):
        raise UserError(f"{path}: holds a run already. Continue it with --resume, or choose another folder with --out.")
    # A run that was killed before it had a configuration has left nothing worth keeping.
    unfinished = {lock.NAME, ENVIRONMENT, SPLIT, TRACEBACK}
    with reading(path):
        if is_there(path / METRICS) and not (path / METRICS).stat().st_size:
            unfinished.add(METRICS)
        names = list_names(path) if path.is_dir() else []
        names = [name for name in names if not name.endswith(SUFFIX)]
        if {*names} - unfinished or (path.exists() and not path.is_dir()):
            raise UserError(f"{path}: exists and is not a run folder. Choose another folder with --out.")


@contextmanager
def start_run(path: Path, config: Config, split: Split, checkpoint_bytes: int) -> Iterator[Run]:
    """Make a run folder and lock it for the block; writes the files that are known before the first iteration."""
    refuse_occupied(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}). Choose another folder with --out.") from None
    try:
        with lock.hold(path) as held:
            refuse_occupied(path)  # again, since now no other process can start there
            atomic.sweep(path)
            run = Run(path, config, held)
            checkpoint.require_room(run.checkpoints, checkpoint_bytes)
            run.write(ENVIRONMENT, begin_stretches(environment_of(config)))
            write_atomically(path / METRICS, b"")
            run.write_settings(split)
            yield run
    finally:
        with suppress(OSError):
            path.rmdir()  # only an empty folder can be removed: one in which nothing was started


def open_run(path: Path, any_method: bool = False) -> Run:
    """Open an existing run folder; with `any_method`, also a run whose method only another program knows."""
    if not (path / CONFIG).is_file():
        raise no_run(path)
    return Run(path, read_settings(path, any_method))


def no_run(path: Path) -> UserError:
    """The error for a path that is no run folder, with a hint: missing, a folder of runs, or an exported model."""
    if not is_there(path):
        return missing(path)
    if exported := describe_exported(path):
        return UserError(exported)
    inside = sorted(found.parent for found in path.glob(f"*/{CONFIG}"))
    hint = " `oneway runs` lists the runs below runs/." if path.is_dir() else ""
    if inside:
        hint = f" It holds runs; name one: {listed(inside, joint='or')}."
    if path.name == MODEL and is_there(path.parent / CONFIG):
        hint = f" Name its folder: {path.parent}."
    return UserError(f"{path}: not a run folder (it has no {CONFIG}).{hint}")


def not_ended(path: Path) -> UserError:
    """The error for a run that has not ended: how to watch, to continue, or to end it at its last checkpoint."""
    if lock.is_touched(path):
        watch = command("oneway", "watch", path)
        return UserError(f"{path}: this run has not ended: it is being trained. To see how far it is: {watch}")
    resume = ("oneway", "train", path, "--resume")
    ways = f"Continue it with: {command(*resume)}"
    if saved := checkpoint.list_complete(path / "checkpoint"):
        done = int(saved[-1].stem)
        here = command(*resume, "--train.iterations", done, "--allow-changes")
        ways += f". To end it where it was saved, after {done:,} iterations: {here}"
    return UserError(f"{path}: this run has not ended. {ways}")


def refuse_links(path: Path) -> None:
    """Refuse a run folder with a link among its files or its checkpoints, before anything is written there."""
    for folder in (path, refuse_link(path / "checkpoint")):
        for name in list_names(folder):
            refuse_link(folder / name)


def data_of(
    run: Run, console: Console, path: Path | None = None, *, refresh: bool = False, cache: Path | None = None
) -> Data:
    """The data settings with which a run's images are read again: where it found them, or in another folder.

    A run folder may come from a stranger: its paths to images are used only if it is the user's own, and are printed;
    its `data.cache` never is. Its `data.refresh` was for the time when it began. With a path that the user gives,
    nothing beside it is read.
    """
    settings = run.config.data
    given: dict[str, Any] = {"refresh": refresh, "cache": cache and cache.absolute()}
    if settings.reduction == "auto":  # a run that reads images smaller says how much
        given["reduction"] = 1
    if path is not None:
        if settings.name in EMBEDDED:
            raise UserError(f"--data {path}: {run.path} is of {settings.name}, which reads no folder. Leave it out.")
        return settings.model_copy(update={**given, "path": path, "unlabelled": None})
    for named in (place for place in (settings.path, settings.unlabelled) if place is not None):
        if not is_own(run.path / CONFIG):
            raise UserError(
                f"{run.path}: belongs to another user, and says that its images are in {named}. "
                "Say yourself where to read them, with --data."
            )
        if not Path(named).exists() and not is_pool(named):
            raise UserError(f"{named}: the run's images are no longer there. Name their folder with --data.")
        say(console, f"Images: {named}, as {run.path / CONFIG} says.")
    return settings.model_copy(update=given)


def is_own(path: Path) -> bool:
    """Whether a file was made by this user, or by the system's administrator."""
    with reading(path):
        return os.lstat(path).st_uid in (os.geteuid(), 0)
