"""Runs that have ended, and what their seeds say together: mean, deviation, standard error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from oneway.common.run_files import SUMMARY
from oneway.config import Config
from oneway.runs import open_run
from oneway.tools.reproduce.requests import cell_folder

KEPT = ("labels", "iterations", "value", "per_class", "seconds", "peak_memory_mib")
ORIGIN = ("hardware", "versions", "python", "commit", "uncommitted")


@dataclass(frozen=True)
class Trained:
    """A run that has ended."""

    config: Config
    summary: dict[str, Any]
    environment: dict[str, Any]
    """Of its training; the table may be written on another machine."""

    drive: str = ""
    """The drive that was held out, where there are drives."""

    def as_json(self) -> dict[str, Any]:
        """All that a document could claim about it, without the folders of the machine it was trained on."""
        weights = self.config.model.weights
        return {
            **({"drive": self.drive} if self.drive else {}),
            "seed": self.config.seed,
            **{key: self.summary[key] for key in KEPT},
            "weights": weights and Path(weights).name,
            "environment": {key: self.environment[key] for key in ORIGIN},
        }


Runs = Mapping[tuple[str, str], Mapping[tuple[str, int], Trained]]
"""By row and column, then by drive and seed."""


def read_trained(folder: Path, drive: str = "") -> Trained:
    """The run in a folder."""
    run = open_run(folder)
    return Trained(run.config, run.summary or {}, run.environment, drive)


def read_runs(out: Path, rows: Iterable[str], columns: Iterable[str], drives: Iterable[str] = ("",)) -> Runs:
    """All runs of a table that have ended in a folder: it may be filled in parts."""
    found: dict[tuple[str, str], dict[tuple[str, int], Trained]] = {}
    for row, column, drive in product(rows, columns, drives):
        for file in (cell_folder(out, row, column) / drive).glob(f"seed*/{SUMMARY}"):
            run = read_trained(file.parent, drive)
            found.setdefault((row, column), {})[drive, run.config.seed] = run
    return {place: dict(sorted(runs.items())) for place, runs in found.items()}


def runs_as_json(runs: Runs) -> list[dict[str, Any]]:
    """Run by run, what a table rests on."""
    return [
        {"row": row, "column": column, **run.as_json()}
        for (row, column), found in runs.items()
        for run in found.values()
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
        """Of a sample; None for a single seed."""
        return stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    @property
    def standard_error(self) -> float | None:
        """Of the mean; None for a single seed."""
        return None if self.deviation is None else self.deviation / sqrt(len(self.by_seed))

    def over(self, other: Mean | None) -> Mean | None:
        """The difference to another, seed by seed; None where they share none."""
        theirs = {} if other is None else other.by_seed
        common = {seed: value - theirs[seed] for seed, value in self.by_seed.items() if seed in theirs}
        return Mean(common) if common else None

    def __str__(self) -> str:
        return f"{self.mean:.1f}{_spread(self.deviation)}"

    def with_error(self, sign: str = "") -> str:
        """The mean and its standard error; with a plus where it is positive, if `sign` is one."""
        return f"{self.mean:{sign}.1f}{_spread(self.standard_error)}"

    def as_json(self) -> dict[str, Any]:
        """With the values, seed by seed."""
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
