"""A run's folder: started once, by one process, and read by many.

It may come from anywhere: what is wrong with one of its files is a UserError that names it.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneway import config as configuration
from oneway.common.errors import UserError
from oneway.common.run_files import CONFIG, ENVIRONMENT, METRICS, MODEL, SPLIT, SUMMARY, TRACEBACK
from oneway.common.words import listed
from oneway.config import Config, Data
from oneway.data.splits import Split
from oneway.runs import atomic, checkpoint, lock
from oneway.runs.atomic import write_atomically, write_json
from oneway.runs.environment import choose_device, environment

MOST_BYTES = 2**26  # of a text file in a run folder

Types = Mapping[str, type | tuple[type, ...]]
"""What an object must have: the type, or types, of the value under each key."""

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
        return _read_object(self.path / ENVIRONMENT, IN_ENVIRONMENT)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The result, once the run has ended."""
        file = self.path / SUMMARY
        return _read_object(file, IN_SUMMARY) if file.exists() else None

    @property
    def split(self) -> Split:
        """Which images the run was started with."""
        file = self.path / SPLIT
        stored = _read_object(file, IN_SPLIT)
        labelled, unlabelled = (tuple(map(str, stored[part])) for part in ("labelled", "unlabelled"))
        split = Split(labelled, unlabelled, stored["content"], stored["validation"])
        if split.hash != stored["hash"]:
            raise UserError(f"{file}: damaged; its names do not have the hash in it.")
        return split

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, in order."""
        file = self.path / METRICS
        return _refuse_damaged(_read_log(file), file)

    def log(self, **values: Any) -> None:
        """Adds a line to `metrics.jsonl`."""
        file = self.path / METRICS
        line = (json.dumps(values) + "\n").encode()
        try:
            with atomic.open_descriptor(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as descriptor:
                if os.write(descriptor, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise atomic.cannot_write(file, len(line), error) from error

    def forget_metrics_after(self, iteration: int) -> None:
        """Drops what a killed run logged after the checkpoint it resumes from, readable or not."""
        file = self.path / METRICS
        lines = _read_log(file)
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
    # A run that was killed before it had a configuration has left nothing worth keeping.
    unfinished = {lock.NAME, ENVIRONMENT, SPLIT, METRICS, TRACEBACK}
    names = [entry.name for entry in path.iterdir() if not entry.name.endswith(atomic.SUFFIX)] if path.is_dir() else []
    if {*names} - unfinished or (path.exists() and not path.is_dir()):
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
        inside = sorted(str(found.parent) for found in path.glob(f"*/{CONFIG}"))
        hint = f" It holds runs; name one: {listed(inside, joint='or')}." if inside else ""
        raise UserError(f"{path}: not a run folder (it has no {CONFIG}).{hint}")
    _refuse_unusual(file)
    return Run(path, configuration.build(configuration.read_yaml(file), source=str(file)))


def data_of(config: Config, path: Path | None = None, refresh: bool = False) -> Data:
    """A run's data, to be read again where it found them, or in another folder.

    That the run accepted changed files when it began does not mean that they may change again: `refresh` says so anew.
    """
    if path is None and config.data.path is not None and not config.data.path.exists():
        raise UserError(f"{config.data.path}: the run's images are no longer there. Name their folder with --data.")
    return config.data.model_copy(update={"path": path or config.data.path, "refresh": refresh})


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a run folder."""
    try:
        found = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: damaged; not JSON ({str(error)[:200]}).") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: damaged; expected an object, found {type(found).__name__}.")
    return found


def _read_object(path: Path, types: Types) -> dict[str, Any]:
    """A JSON object whose values are of these types; refused where one is missing or of another type."""
    found = read_json(path)
    for key, expected in types.items():
        if not isinstance(found.get(key), expected):
            raise UserError(f"{path}: damaged; {key} is {found.get(key)!r:.200}.")
    return found


def _read_log(path: Path) -> list[dict[str, Any] | None]:
    """The lines of `metrics.jsonl`; None for one that is no JSON object with an iteration.

    A last line without its end is left out: it was being written when the machine stopped.
    """
    return [_parse(line) for line in _read_text(path).split("\n")[:-1]] if path.exists() else []


def _parse(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("iteration"), int) else None


def _refuse_damaged(lines: Sequence[dict[str, Any] | None], file: Path) -> list[dict[str, Any]]:
    if None in lines:
        raise UserError(f"{file}: damaged; line {lines.index(None) + 1} is no JSON object with an iteration.")
    return [line for line in lines if line is not None]


def _read_text(path: Path) -> str:
    """The text of a file; bytes that are not UTF-8 become U+FFFD."""
    _refuse_unusual(path)
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from None


def _refuse_unusual(path: Path) -> None:
    """Refuses a link, which could lead out of the folder, a pipe, and a file that would fill the memory."""
    if path.is_symlink() or not path.is_file():
        raise UserError(f"{path}: {'not an ordinary file' if path.exists() else 'no such file'}.")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise UserError(f"{path}: damaged; {size} bytes are too many.")
