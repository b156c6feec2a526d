"""A run's folder: started once, by one process, and read by many."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneway import config as configuration
from oneway.common.errors import UserError
from oneway.common.run_files import CONFIG, ENVIRONMENT, METRICS, MODEL, SPLIT, SUMMARY, TRACEBACK
from oneway.config import Config, Data
from oneway.data.splits import Split
from oneway.runs import atomic, checkpoint, lock
from oneway.runs.atomic import write_atomically, write_json
from oneway.runs.device import choose_device
from oneway.runs.environment import environment
from oneway.runs.reading import Types, read_json, read_log, refuse_unusual, require_types

IN_SUMMARY: Types = {
    "method": str,
    "variant": str,
    "seed": int,
    "labels": int,
    "iterations": int,
    "metric": str,
    "value": (int, float),
    "per_class": dict,
    "absent": list,
    "confusion": list,
    "validation_samples": int,
    "seconds": (int, float),
    "peak_memory_mib": (int, float),
}
IN_ENVIRONMENT: Types = {
    "command": str,
    "started": str,
    "versions": dict,
    "python": str,
    "platform": str,
    "hardware": str,
    "commit": (str, type(None)),
    "uncommitted": (bool, type(None)),
}
IN_SPLIT: Types = {"hash": str, "labelled": list, "unlabelled": list, "content": str, "validation": str}


@dataclass(frozen=True)
class Run:
    """A run folder and its configuration. Everything else in it is read when asked for."""

    path: Path
    config: Config

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self.path / "checkpoint"

    @property
    def model_file(self) -> Path:
        """Where the trained model is, once the run has ended."""
        return self.path / MODEL

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, hardware, commit and command."""
        file = self.path / ENVIRONMENT
        return require_types(read_json(file), IN_ENVIRONMENT, file)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The result, once the run has ended."""
        file = self.path / SUMMARY
        return require_types(read_json(file), IN_SUMMARY, file) if file.exists() else None

    @property
    def split(self) -> Split:
        """Which images the run was started with."""
        file = self.path / SPLIT
        stored = require_types(read_json(file), IN_SPLIT, file)
        labelled, unlabelled = (tuple(map(str, stored[part])) for part in ("labelled", "unlabelled"))
        split = Split(labelled, unlabelled, stored["content"], stored["validation"])
        if split.hash != stored["hash"]:
            raise UserError(f"{file}: damaged; its names do not have the hash in it.")
        return split

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, in order."""
        file = self.path / METRICS
        return _refuse_damaged(read_log(file), file)

    def log(self, **values: Any) -> None:
        """Adds a line to `metrics.jsonl`."""
        file = self.path / METRICS
        line = (json.dumps(values) + "\n").encode()
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                if os.write(descriptor, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise atomic.cannot_write(file, len(line), error) from error

    def forget_metrics_after(self, iteration: int) -> None:
        """Drops what a killed run logged after the checkpoint it resumes from, readable or not."""
        file = self.path / METRICS
        lines = read_log(file)
        while lines and not ((last := lines[-1]) and last["iteration"] <= iteration):
            lines.pop()
        kept = [line for line in _refuse_damaged(lines, file) if line["iteration"] <= iteration]
        write_atomically(file, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def write(self, name: str, values: Any) -> None:
        """Writes a JSON file of the folder."""
        write_json(self.path / name, values)

    def write_settings(self, split: Split) -> None:
        """Writes the split, and last the configuration: where there is one, the run has been started."""
        write_atomically(self.path / SPLIT, split.to_json().encode())
        write_atomically(self.path / CONFIG, self.config.to_yaml().encode())


def refuse_occupied(path: Path) -> None:
    """Refuses a folder that a new run would share with something else: nothing is ever overwritten."""
    if (path / CONFIG).is_file():
        raise UserError(f"{path}: holds a run already. Continue it with --resume, or choose another folder with --out.")
    if path.exists() and not path.is_dir():
        raise UserError(f"{path}: exists and is not a run folder. Choose another folder with --out.")
    # A run that was killed before it had a configuration has left nothing worth keeping.
    unfinished = {lock.NAME, ENVIRONMENT, SPLIT, METRICS, TRACEBACK}
    entries = [entry.name for entry in path.iterdir()] if path.exists() else []
    if any(name not in unfinished and not name.endswith(atomic.SUFFIX) for name in entries):
        raise UserError(f"{path}: exists and is not a run folder. Choose another folder with --out.")


@contextmanager
def start_run(path: Path, config: Config, split: Split, checkpoint_bytes: int) -> Iterator[Run]:
    """Makes a run folder with what is known before the first iteration; within the block, it is locked."""
    refuse_occupied(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}). Choose another folder with --out.") from None
    try:
        with lock.hold(path):
            refuse_occupied(path)  # again, since now no other process can start there
            atomic.sweep(path)
            run = Run(path, config)
            checkpoint.require_room(run.checkpoints, checkpoint_bytes)
            run.write(ENVIRONMENT, environment(choose_device(config.train.device)))
            write_atomically(path / METRICS, b"")
            run.write_settings(split)
            yield run
    finally:
        with suppress(OSError):
            path.rmdir()  # only an empty folder can be removed: one in which nothing was started


def open_run(path: Path) -> Run:
    """An existing run folder."""
    file = path / CONFIG
    if not file.is_file():
        raise UserError(f"{path}: not a run folder (it has no {CONFIG}).")
    refuse_unusual(file)
    return Run(path, configuration.build(configuration.read_yaml(file), source=str(file)))


def data_of(config: Config, path: Path | None = None, refresh: bool = False) -> Data:
    """A run's data, to be read again where it found them, or in another folder.

    That the run accepted changed files when it began does not mean that they may change again: `refresh` says so anew.
    """
    if path is None and config.data.path is not None and not config.data.path.exists():
        raise UserError(f"{config.data.path}: the run's images are no longer there. Name their folder with --data.")
    return config.data.model_copy(update={"path": path or config.data.path, "refresh": refresh})


def _refuse_damaged(lines: Sequence[dict[str, Any] | None], file: Path) -> list[dict[str, Any]]:
    if None in lines:
        raise UserError(f"{file}: damaged; line {lines.index(None) + 1} is no JSON object with an iteration.")
    return [line for line in lines if line is not None]
