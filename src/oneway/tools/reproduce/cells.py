"""Cells of a table: the score of a method, and its difference to a baseline, seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from oneway.tools.baseline import alike
from oneway.tools.reproduce.results import Mean, Runs, Trained

SMALLEST_DISTANCE = 1.0
"""Points below which the distance to all labels is not divided by: two seeds differ by more."""


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

    def over_drives(value: Callable[[tuple[str, int]], float | None]) -> Mean | None:
        found = {seed: [value((drive, seed)) for drive in drives] for seed in seeds}
        whole = {seed: mean(known) for seed, values in found.items() if len(known := _known(values)) == len(drives)}
        return Mean(whole) if whole else None

    score = over_drives(lambda place: of_cell[place].summary["value"] if place in of_cell else None)
    if score is None:
        return None
    difference = over_drives(lambda place: _gain(beside.get(place), of_cell.get(place))) if row != baseline else None
    distance = (
        over_drives(lambda place: _gain(beside.get(place), complete.get(place))) if column != all_labels else None
    )
    return Cell(
        row, column, [of_cell[drive, seed] for drive, seed in of_cell if drive in drives], score, difference, distance
    )


def _gain(baseline: Trained | None, other: Trained | None) -> float | None:
    """The difference of two runs that are as long as each other, and differ in method and labels at most."""
    if baseline is None or other is None or baseline.summary["iterations"] != other.summary["iterations"]:
        return None
    if not alike(baseline.config, other.config):
        return None
    return float(other.summary["value"] - baseline.summary["value"])


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
