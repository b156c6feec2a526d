"""The run folder: what a training run leaves behind, and how it is read again."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from oneway.runs import atomic
from oneway.runs import checkpoint
from oneway import config as configuration
from oneway.runs.atomic import write_atomically, write_json
from oneway.config import Config, Data
from oneway.data.splits import Split
from oneway.common.errors import UserError
from oneway.runs import lock
from oneway.runs.environment import environment
from oneway.runs.model_file import TrainedModel as TrainedModel
from oneway.runs.model_file import load_model as load_model
from oneway.runs.model_file import save_model as save_model
from oneway.runs.reading import Kinds, checked, logged_lines, refuse_strange
from oneway.runs.reading import read_json as read_json
from oneway.common.run_files import CONFIG as CONFIG
from oneway.common.run_files import ENVIRONMENT, MODEL, SPLIT, SUMMARY, TRACEBACK
from oneway.common.run_files import METRICS as METRICS

IN_SUMMARY: Kinds = {
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
    "seconds": (int, float),
    "peak_memory_mib": (int, float),
}
LATER_IN_SUMMARY: Kinds = {"validation_samples": int}
"""What a summary has by now, and that of an old run may lack."""

IN_ENVIRONMENT: Kinds = {
    "command": str,
    "started": str,
    "versions": dict,
    "python": str,
    "platform": str,
    "hardware": str,
    "commit": (str, type(None)),
}


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
        return checked(read_json(file), IN_ENVIRONMENT, file)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The result, once the run has ended."""
        file = self.path / SUMMARY
        if not file.exists():
            return None
        summary = read_json(file)
        later = {key: kind for key, kind in LATER_IN_SUMMARY.items() if key in summary}
        return checked(summary, {**IN_SUMMARY, **later}, file)

    @property
    def split(self) -> Split:
        """Which images the run was started with."""
        file = self.path / SPLIT
        stored = read_json(file)
        labelled, unlabelled = stored.get("labelled"), stored.get("unlabelled")
        content, validation = stored.get("content", ""), stored.get("validation", "")
        if isinstance(labelled, list) and isinstance(unlabelled, list):
            split = Split(tuple(map(str, labelled)), tuple(map(str, unlabelled)), str(content), str(validation))
            if split.hash == stored.get("hash"):
                return split
        raise UserError(f"{file}: damaged; its names do not have the hash in it.")

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, in order."""
        file = self.path / METRICS
        lines = logged_lines(file)
        if None in lines:
            raise UserError(f"{file}: damaged; line {lines.index(None) + 1} is no JSON object with an iteration.")
        return [line for line in lines if line]

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
        """Drops what a killed run logged past the checkpoint it resumes from, legible or not."""
        file = self.path / METRICS
        lines = logged_lines(file)
        kept = [index for index, line in enumerate(lines) if line and line["iteration"] <= iteration]
        known = lines[: kept[-1] + 1] if kept else []
        if None in known:
            raise UserError(f"{file}: damaged; line {known.index(None) + 1} is no JSON object with an iteration.")
        write_atomically(file, "".join(json.dumps(lines[index]) + "\n" for index in kept).encode())

    def write(self, name: str, values: Any) -> None:
        """A JSON file of the folder."""
        write_json(self.path / name, values)

    def write_settings(self, split: Split) -> None:
        """The split, and last the configuration: where there is one, the run has been started."""
        write_atomically(self.path / SPLIT, split.to_json().encode())
        write_atomically(self.path / CONFIG, self.config.to_yaml().encode())


def refuse_occupied(path: Path) -> None:
    """A new run wants an empty place: nothing is ever overwritten."""
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
def started(path: Path, config: Config, split: Split, checkpoint_bytes: int) -> Iterator[Run]:
    """A new run folder, this process's own within the block, with what is known before the first iteration."""
    refuse_occupied(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}). Choose another folder with --out.") from None
    try:
        with lock.held(path):
            refuse_occupied(path)  # once more, now that nobody else can be about to start there
            atomic.sweep(path)
            require_room_for_checkpoints(path, checkpoint_bytes)
            run = Run(path, config)
            run.write(ENVIRONMENT, environment(choose_device(config.train.device)))
            write_atomically(path / METRICS, b"")
            run.write_settings(split)
            yield run
    finally:
        with suppress(OSError):
            path.rmdir()  # where nothing was started, nothing is left


def require_room_for_checkpoints(path: Path, checkpoint_bytes: int) -> None:
    """Refuses a folder without room for those that are kept, the one being written, and the model."""
    there = sum(file.stat().st_size for file in checkpoint.files(path / "checkpoint"))
    atomic.require_room(path, (checkpoint.KEPT + 2) * checkpoint_bytes - there, checkpoint_bytes)


def open_run(path: Path) -> Run:
    """An existing run folder."""
    file = path / CONFIG
    if not file.is_file():
        raise UserError(f"{path}: not a run folder (it has no config.yaml).")
    refuse_strange(file)
    return Run(path, configuration.build(_migrated(configuration.read_yaml(file)), source=str(file)))


def _migrated(tree: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a run as it would be written now; once, every model had a backbone by name."""
    model = tree.get("model")
    if isinstance(model, dict) and model.get("name") in ("mlp", "wrn-28-2"):
        return {**tree, "model": {**model, "backbone": None}}
    return tree


def data_of(config: Config, path: Path | None = None, refresh: bool = False) -> Data:
    """A run's data, to be read again where it found them, or in another folder.

    That the run accepted changed files when it began does not mean that they may change again: `refresh` says so anew.
    """
    if path is None and config.data.path is not None and not config.data.path.exists():
        raise UserError(f"{config.data.path}: the run's images are no longer there. Name their folder with --data.")
    return config.data.model_copy(update={"path": path or config.data.path, "refresh": refresh})


def choose_device(name: str) -> torch.device:
    """The device of a name; `auto` takes the GPU where there is one. Kernels are launched there from now on."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device {name}: no such kind of device. Use auto, cpu, cuda or cuda:1.") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device {name}: only cpu and cuda are supported.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device {name}: {torch.cuda.device_count()} CUDA devices are visible. Use auto or cpu.")
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)
    return device
