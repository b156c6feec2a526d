"""Runs that have ended, and the cells of a table that they fill: what their seeds say together, and of a baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isnan, nan, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from oneway.common.run_files import SUMMARY
from oneway.config import Config
from oneway.runs import open_run
from oneway.tools.baseline import alike
from oneway.tools.reproduce.jobs import cell_folder

KEPT = ("labels", "iterations", "value", "per_class", "seconds", "peak_memory_mib")
ORIGIN = ("hardware", "versions", "python", "commit", "uncommitted")
SMALLEST_DISTANCE = 1.0
"""Points below which the distance to all labels is not divided by: two seeds differ by more."""


@dataclass(frozen=True)
class Trained:
    """A run that has ended."""

    config: Config
    summary: dict[str, Any]
    environment: dict[str, Any]
    """The environment of its training; the table may be written on another machine."""

    def as_json(self) -> dict[str, Any]:
        """All that a document could claim about it, without the folders of the machine it was trained on."""
        weights = self.config.model.weights
        return {
            "seed": self.config.seed,
            **{key: self.summary[key] for key in KEPT},
            "weights": weights and Path(weights).name,
            "environment": {key: self.environment[key] for key in ORIGIN},
        }


Runs = Mapping[tuple[str, str], Mapping[tuple[str, int], Trained]]
"""Runs by row and column, then by drive and seed."""


def read_trained(folder: Path) -> Trained:
    """The run in a folder."""
    run = open_run(folder)
    return Trained(run.config, run.summary or {}, run.environment)


def read_runs(out: Path, rows: Iterable[str], columns: Iterable[str], drives: Iterable[str] = ("",)) -> Runs:
    """All runs of a table that have ended in a folder with a score: it may be filled in parts."""
    found: dict[tuple[str, str], dict[tuple[str, int], Trained]] = {}
    for row, column, drive in product(rows, columns, drives):
        for file in (cell_folder(out, row, column) / drive).glob(f"seed*/{SUMMARY}"):
            run = read_trained(file.parent)
            if run.summary["value"] is not None:
                found.setdefault((row, column), {})[drive, run.config.seed] = run
    return {place: dict(sorted(runs.items())) for place, runs in found.items()}


def runs_as_json(runs: Runs) -> list[dict[str, Any]]:
    """Run by run, what a table rests on."""
    return [
        {"row": row, "column": column, **({"drive": drive} if drive else {}), **run.as_json()}
        for (row, column), found in runs.items()
        for (drive, _), run in found.items()
    ]


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, with the value of each."""

    by_seed: dict[int, float]

    @property
    def mean(self) -> float:
        return mean(self.by_seed.values())

    @property
    def deviation(self) -> float | None:
        """The sample deviation; None for a single seed."""
        return stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean; None for a single seed."""
        return None if self.deviation is None else self.deviation / sqrt(len(self.by_seed))

    def over(self, other: Mean) -> Mean | None:
        """The difference to another, seed by seed; None where they share none."""
        common = {seed: value - other.by_seed[seed] for seed, value in self.by_seed.items() if seed in other.by_seed}
        return Mean(common) if common else None

    def __str__(self) -> str:
        return f"{self.mean:.1f}{_spread(self.deviation)}"

    def with_error(self, sign: str = "") -> str:
        """The mean and its standard error; with a plus where it is positive, if `sign` is one."""
        return f"{round(self.mean, 1) + 0.0:{sign}.1f}{_spread(self.standard_error)}"  # never −0.0

    def as_json(self) -> dict[str, Any]:
        """The mean and what belongs to it, with the values seed by seed."""
        return {
            "mean": self.mean,
            "deviation": self.deviation,
            "standard_error": self.standard_error,
            "n": len(self.by_seed),
            "seeds": list(self.by_seed),
            "values": list(self.by_seed.values()),
        }


def _spread(value: float | None) -> str:
    return "" if value is None else f" ± {value:.1f}"


@dataclass(frozen=True)
class Cell:
    """A method with a number of labels, on the mean over some drives; seeds that lack one of them do not count."""

    row: str
    column: str
    runs: Sequence[Trained]
    score: Mean
    difference: Mean | None
    """To the baseline with the same seed, labels and length, on the same drive; None where there is no pair."""

    distance: Mean | None
    """From the baseline with these labels to the baseline with all, seed by seed."""

    @property
    def closed(self) -> float | None:
        """The share of the distance that the difference makes up for, over the seeds that have both.

        None where all labels are hardly better: a share would mean nothing.
        """
        if self.difference is None or self.distance is None:
            return None
        seeds = self.difference.by_seed.keys() & self.distance.by_seed.keys()
        if not seeds or (whole := mean(self.distance.by_seed[seed] for seed in seeds)) < SMALLEST_DISTANCE:
            return None
        return mean(self.difference.by_seed[seed] for seed in seeds) / whole

    @property
    def lengths(self) -> list[int]:
        """The iterations of its runs."""
        return sorted({run.summary["iterations"] for run in self.runs})

    def as_json(self) -> dict[str, Any]:
        """By name; what is not known is null."""
        means = {"score": self.score, "difference": self.difference, "distance": self.distance}
        return {
            "row": self.row,
            "column": self.column,
            "iterations": self.lengths,
            **{name: found and found.as_json() for name, found in means.items()},
            "closed": self.closed,
        }


def measure_all(runs: Runs, baseline: str = "", all_labels: str = "", drives: Sequence[str] = ("",)) -> list[Cell]:
    """The cells of all runs, over these drives; none where no seed has all of them.

    The row `baseline`, if there is one, is what others are compared with, and its column `all_labels` itself.
    """
    return [cell for place in runs if (cell := _measure(runs, *place, baseline, all_labels, drives)) is not None]


def _measure(runs: Runs, row: str, column: str, baseline: str, all_labels: str, drives: Sequence[str]) -> Cell | None:
    of_cell, beside, complete = (
        runs.get(place, {}) for place in ((row, column), (baseline, column), (baseline, all_labels))
    )
    seeds = sorted({seed for _, seed in of_cell})

    def over_drives(value: Callable[[tuple[str, int]], float]) -> Mean | None:
        means = {seed: mean(value((drive, seed)) for drive in drives) for seed in seeds}
        whole = {seed: found for seed, found in means.items() if not isnan(found)}
        return Mean(whole) if whole else None

    score = over_drives(lambda place: of_cell[place].summary["value"] if place in of_cell else nan)
    if score is None:
        return None
    difference = over_drives(lambda place: _gain(beside.get(place), of_cell.get(place))) if row != baseline else None
    distance = (
        over_drives(lambda place: _gain(beside.get(place), complete.get(place))) if column != all_labels else None
    )
    counted = [run for (drive, _), run in of_cell.items() if drive in drives]
    return Cell(row, column, counted, score, difference, distance)


def _gain(baseline: Trained | None, other: Trained | None) -> float:
    """The difference of two runs that are as long as each other, and differ in method and labels at most; else NaN."""
    if baseline is None or other is None or baseline.summary["iterations"] != other.summary["iterations"]:
        return nan
    return other.summary["value"] - baseline.summary["value"] if alike(baseline.config, other.config) else nan
