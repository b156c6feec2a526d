"""What runs there are below a folder, how far each is and how good; only reads, and needs no PyTorch."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from oneway.common.errors import UserError, missing
from oneway.common.links import refuse_link
from oneway.common.run_files import CONFIG, ENVIRONMENT, METRICS, SPLIT, SUMMARY
from oneway.common.words import command, in_bytes, visible
from oneway.runs import lock, records
from oneway.runs.reading import is_there, list_names
from oneway.runs.settings import read_settings

Order = Literal["date", "score", "name"]
STYLES = {"ended": "green", "training": "bold cyan", "suspended": "yellow", "stopped": "yellow", "unreadable": "red"}
LONGEST = 60
"""Characters of a method's name that a table shows."""


@dataclass(frozen=True)
class ListedRun:
    """A run folder; what is not known of it is None."""

    path: str
    name: str
    bytes: int
    state: str = "unreadable"  # or another of STYLES
    problem: str | None = None
    started: str | None = None
    method: str | None = None
    labels: int | None = None
    seed: int | None = None
    done: int | None = None  # of a stopped run, the iterations that it goes on from
    iterations: int | None = None
    metric: str | None = None
    value: float | None = None
    interval: Sequence[float] | None = None
    process: int | None = None  # of a suspended run


def list_runs(folder: Path, order: Order = "date") -> list[ListedRun]:
    """The runs below a folder, or the one that it is: the newest last, or the best, or by name."""
    if not folder.is_dir():
        problem = f"{folder}: not a folder." if is_there(folder) else str(missing(folder))
        raise UserError(f"{problem} Say where your runs are: {command('oneway', 'runs', 'FOLDER')}")
    found = sorted((_read(Path(path), folder, size) for path, size in _find(folder).items()), key=lambda run: run.name)
    if not found:
        train = command("oneway", "train", "streets", "--out", folder / "first")
        raise UserError(f"{folder}: holds no run (no folder has a {CONFIG}). Name another folder, or train: {train}")
    if order == "date":
        found.sort(key=lambda run: run.started or "")
    elif order == "score":
        found.sort(key=lambda run: -1 if run.value is None else run.value)
    return found


def _find(folder: Path) -> dict[str, int]:
    """Folders of runs, each with the bytes of all files there. No link is followed."""
    sizes: dict[str, int] = {}
    ahead: list[tuple[str, str | None]] = [(str(folder), None)]
    while ahead:
        here, run = ahead.pop()
        entries: list[os.DirEntry[str]] = []
        try:
            with os.scandir(here) as listed:
                entries = [*listed]
        except PermissionError:  # a folder that only its owner may read can be a run
            if run is None:
                sizes[here] = 0
        except OSError:  # it has gone meanwhile
            continue
        files = {entry.name: entry for entry in entries if not entry.is_dir(follow_symlinks=False)}
        begins = run is None and CONFIG in files
        if begins:
            run, sizes[here] = here, 0
        if run is not None:
            sizes[run] += sum(map(_size, files.values()))
        if begins and not files.keys() & {ENVIRONMENT, METRICS, SUMMARY}:
            run = None  # a file of that name alone is likely to be another program's, and runs may be below
        folders = (entry for entry in entries if entry.name not in files)
        ahead += [(entry.path, run) for entry in folders if run or not entry.name.startswith(".")]
    return sizes


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:  # it has gone meanwhile
        return 0


def _read(path: Path, below: Path, size: int) -> ListedRun:
    facts: dict[str, Any] = {"name": str(path.relative_to(below)) if path != below else path.resolve().name}
    try:
        facts["started"] = _started(path / ENVIRONMENT)
        facts |= _ended(path) if is_there(path / SUMMARY) else _begun(path)
    except UserError as error:
        facts["problem"] = str(error)
    return ListedRun(str(path), bytes=size, **facts)


def _started(file: Path) -> str:
    started = records.read(file, records.Environment)["started"]
    try:
        return datetime.fromisoformat(started).astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        raise UserError(f"{file}: damaged; started is {started[:LONGEST]!r}, and no time.") from None


def _ended(path: Path) -> dict[str, Any]:
    summary = records.read(path / SUMMARY, records.Summary)
    facts = {key: summary.get(key) for key in ("method", "labels", "seed", "iterations", "metric", "value", "interval")}
    return {**facts, "state": "ended", "done": summary["iterations"]}


def _begun(path: Path) -> dict[str, Any]:
    config, labels = read_settings(path, any_method=True), len(records.read_split(path / SPLIT).labelled)
    process = lock.suspended_process(path)
    state = "suspended" if process else "training" if lock.is_touched(path) else "stopped"
    if state != "stopped":
        done = [line["iteration"] for line in records.read_log(path / METRICS) if not isinstance(line, str)]
    else:  # it goes on from its newest checkpoint; their names are read here, since their reader needs PyTorch
        names = list_names(refuse_link(path / "checkpoint"))
        done = [int(name.removesuffix(".json")) for name in names if re.fullmatch(r"[0-9]+\.json", name)]
    return {
        "state": state,
        "process": process,
        "method": config.method,
        "labels": labels,
        "seed": config.seed,
        "done": max(done, default=0),
        "iterations": config.train.total_iterations(labels),
    }


def _iterations(run: ListedRun) -> str:
    return f"{run.done:,}" if run.done == run.iterations else f"{run.done:,}/{run.iterations:,}"


def _date(run: ListedRun) -> str:
    return f"{datetime.fromisoformat(run.started).astimezone():%Y-%m-%d %H:%M}" if run.started else "–"


COLUMNS: dict[str, Callable[[ListedRun], str]] = {
    "run": lambda run: run.name,
    "method": lambda run: (run.method or "–")[:LONGEST],
    "labels": lambda run: "–" if run.labels is None else f"{run.labels:,}",
    "seed": lambda run: "–" if run.seed is None else str(run.seed),
    "iterations": lambda run: "–" if run.done is None else _iterations(run),
    "state": lambda run: run.state,
    "score in %": lambda run: "–" if run.value is None else f"{run.value:.1f}",
    "95 % interval": lambda run: "–" if not run.interval else f"{run.interval[0]:.1f} – {run.interval[1]:.1f}",
    "started": _date,
    "size": lambda run: in_bytes(run.bytes),
}
BY_WORTH = ("state", "score in %", "iterations", "started", "95 % interval", "labels", "method", "size", "seed")
"""Which columns a narrow terminal shows rather than others: the names of runs often say what they learn from."""


def table(runs: Sequence[ListedRun], width: int) -> Table:
    """The columns that a terminal of this width has room for, when a long name is folded to two fifths of it."""
    columns = {title: [visible(value(run), lines=False) for run in runs] for title, value in COLUMNS.items()}
    widths = {title: max(map(cell_len, (title, *cells))) + 2 for title, cells in columns.items()}
    room = width + 2 - min(widths["run"], max(24, width * 2 // 5))
    for title in BY_WORTH:
        if widths[title] <= room:
            room -= widths[title]
        else:
            del columns[title]
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in columns:
        text = title in ("run", "method", "state", "started")
        drawn.add_column(title, justify="left" if text else "right", overflow="fold", no_wrap=title != "run")
    for run, *cells in zip(runs, *columns.values(), strict=True):
        styles = [STYLES[run.state] if title == "state" else "" for title in columns]
        drawn.add_row(*map(Text, cells, styles))
    return drawn
