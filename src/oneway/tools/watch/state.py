"""What there is to see of runs, read from their folders again whenever a file there has changed."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oneway.common.errors import UserError, missing
from oneway.common.links import refuse_link
from oneway.common.run_files import CONFIG, METRICS, PICTURES, SUMMARY
from oneway.runs import lock, open_run, records
from oneway.runs.checkpoint import list_complete
from oneway.runs.reading import read_whole
from oneway.tools.evaluate import METRIC_NAMES, METRIC_OF_TASK
from oneway.tools.report.facts import curve_titles, losses_in, series_in
from oneway.tools.report.plots import Line, average
from oneway.tools.snapshots import CLASSES

DEPTH = 3
"""Folders between the one that is watched and a run in it, at most."""

MOST_RUNS = 50
MOST_BYTES = 2**23
"""The most bytes of a file in the folder of pictures."""

REST = 20
"""A log is read again after so many times as long as reading it took: the processor is for training."""

PICTURE = re.compile(r"(image-\d|truth-\d|\d{8,12}-\d)\.(jpg|png)")
WATCHED = (CONFIG, METRICS, SUMMARY)


@dataclass
class WatchedRun:
    """One run, and what was read of it last."""

    path: Path
    name: str
    signature: tuple[Any, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    version: int = 0
    rest_until: float = 0.0
    first: tuple[float, int] | None = None
    """When it was first seen to train, and how far it was."""


class Watcher:
    """The runs in a folder, or the run that it is; new ones are found as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: dict[Path, WatchedRun] = {}
        self.lock = threading.Lock()  # several requests may ask at once
        if not self._find():
            if not path.exists():
                raise missing(path)
            raise UserError(f"{path}: neither a run folder, nor a folder of runs (there is no {CONFIG}).")

    def overview(self) -> list[dict[str, Any]]:
        """All runs, those that changed last first: what they are, and how far."""
        with self.lock:
            return [self._brief(run) for run in self._find()]

    def details(self, number: int) -> dict[str, Any]:
        """Curves, classes and pictures of a run, by its number in the overview."""
        with self.lock:
            run = self._numbered(number)
            self._read(run)
            return {"number": number, "version": run.version, **run.details}

    def picture(self, number: int, name: str) -> bytes:
        """A picture in a run folder."""
        with self.lock:
            run = self._numbered(number)
        if not PICTURE.fullmatch(name):
            raise UserError("No such picture.")
        return _read_bytes(run.path / PICTURES / name)

    def _numbered(self, number: int) -> WatchedRun:
        if not 0 <= number < len(self.runs):
            raise UserError("No such run.")
        return [*self.runs.values()][number]

    def _find(self) -> list[WatchedRun]:
        """Runs by the time of their last change, the latest first; their numbers stay what they are."""
        if (self.path / CONFIG).is_file():
            found = [self.path]
        else:
            patterns = ["/".join(["*"] * depth + [CONFIG]) for depth in range(1, DEPTH + 1)]
            found = [file.parent for pattern in patterns for file in self.path.glob(pattern)]
        found = sorted(found, key=lambda folder: _signature(folder / METRICS), reverse=True)[:MOST_RUNS]
        for folder in found:
            if folder not in self.runs:
                name = str(folder.relative_to(self.path)) if folder != self.path else folder.resolve().name
                self.runs[folder] = WatchedRun(folder, name)
        return [self.runs[folder] for folder in found]

    def _brief(self, run: WatchedRun) -> dict[str, Any]:
        self._read(run)
        number = [*self.runs].index(run.path)
        known = ("method", "labels", "seed", "done", "iterations", "metric", "value", "problem")
        brief = {key: run.details.get(key) for key in known}
        suspended = lock.suspended_process(run.path) is not None
        trains = lock.is_touched(run.path) and not suspended
        begun = "suspended" if suspended else "training" if trains else "stopped"
        state = "ended" if run.details.get("ended") else begun
        with suppress(UserError):
            if state == "stopped" and (saved := list_complete(run.path / "checkpoint")):
                brief["done"] = int(saved[-1].stem)  # it goes on from there; the log may have fewer iterations, or more
        left = self._left(run) if trains else None
        return {"number": number, "name": run.name, "version": run.version, "state": state, **brief, "left": left}

    def _left(self, run: WatchedRun) -> float | None:
        """Seconds until the run ends, by its pace since the page was first asked for; None where that is not known."""
        done, iterations, now = run.details.get("done", 0), run.details.get("iterations", 0), time.monotonic()
        if run.first is None or done < run.first[1]:
            run.first = now, done
        began, before = run.first
        return (iterations - done) * (now - began) / (done - before) if done > before else None

    def _read(self, run: WatchedRun) -> None:
        """Read a run if one of its files is another than before."""
        signature = tuple(_signature(run.path / name) for name in WATCHED)
        began = time.monotonic()
        if signature == run.signature or began < run.rest_until:
            return
        try:
            run.details = read_details(run.path)
        except UserError as error:  # it may be that it is being written
            run.details = {**run.details, "problem": str(error)}
        run.signature = signature
        run.version += 1
        run.rest_until = (now := time.monotonic()) + REST * (now - began)


def read_details(path: Path) -> dict[str, Any]:
    """Everything that the page shows of a run."""
    run = open_run(path, any_method=True)
    log = [line for line in records.read_log(path / METRICS) if not isinstance(line, str)]
    summary, split, config = run.summary, run.split, run.config
    metric = METRIC_OF_TASK[config.data.task]
    validated = [line for line in log if metric in line]
    per_class = validated[-1].get("per_class", []) if validated else []
    names, colours = _classes(path / PICTURES / CLASSES)
    names = list(summary["per_class"]) if summary else names or [f"class {n}" for n, _ in enumerate(per_class, start=1)]
    curves = {**curve_titles(metric, losses_in(log)), "learning_rate": "Learning rate"}
    return {
        "method": config.method,
        "labels": len(split.labelled),
        "seed": config.seed,
        "done": max((line["iteration"] for line in log), default=0),
        "iterations": config.train.total_iterations(len(split.labelled)),
        "ended": summary is not None,
        "metric": METRIC_NAMES[metric],
        "value": validated[-1][metric] if validated else None,
        "curves": [{"key": key, "title": title, **_points(log, key)} for key, title in curves.items()],
        "per_class": [{"name": name, "value": value} for name, value in zip(names, per_class, strict=False)],
        "measured": "IoU" if metric == "miou" else "Recognised",
        "legend": [{"name": name, "colour": colour} for name, colour in zip(names, colours, strict=False)],
        "validation": split.validation,
        "pictures": _pictures(path / PICTURES, {line["iteration"] for line in validated}),
        "problem": None,
    }


def _points(log: list[dict[str, Any]], key: str) -> dict[str, Any]:
    series = series_in(log, key)
    if not series.values:
        return {"x": [], "y": []}
    x, y = average(Line(series.iterations, series.values, 0))
    return {"x": x.tolist(), "y": y.tolist()}


def _pictures(folder: Path, validated: set[int]) -> dict[str, Any]:
    """How many images are shown, and after which iterations; what no line of the log speaks of may be half written."""
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    scenes = sum(name.startswith("truth-") for name in names)
    found = {int(name.partition("-")[0]) for name in names if re.fullmatch(r"\d{8,12}-1\.png", name)}
    return {"scenes": scenes, "iterations": sorted(found & validated)}


def _classes(file: Path) -> tuple[list[str], list[str]]:
    """The names of the classes and their colours as CSS has them; nothing where the run does not say."""
    try:
        found = json.loads(_read_bytes(file))
        colours = [f"rgb({r:d}, {g:d}, {b:d})" for r, g, b in found["colours"]]
        return [str(name) for name in found["classes"]], colours
    except (UserError, ValueError, KeyError, TypeError):
        return [], []


def _read_bytes(file: Path) -> bytes:
    """A file in the folder of pictures; neither the file nor the folder may be a link."""

    def check_size(size: int) -> None:
        if size > MOST_BYTES:
            raise UserError(f"{file.name}: {size} bytes are too many.")

    refuse_link(file.parent)
    return read_whole(file, check_size)


def _signature(file: Path) -> tuple[int, int, int]:
    """When a file was changed, and more that tells it from what it was before; zeros where there is none."""
    try:
        about = file.stat()
    except OSError:
        return 0, 0, 0
    return about.st_mtime_ns, about.st_size, about.st_ino
