"""Cells of a paired table: the score of a method, and its difference to labels alone, seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from oneway.tools.baseline import BASELINE, alike
from oneway.tools.reproduce.results import Mean, Runs, Trained

SMALLEST_DISTANCE = 1.0
"""Points below which the distance to all labels is not divided by: two seeds differ by more."""


@dataclass(frozen=True)
class PairedCell:
    """A method with a number of labels, on the mean over some drives; seeds that lack one of them do not count."""

    row: str
    column: str
    score: Mean
    difference: Mean | None
    """To `supervised` with the same seed, labels and length, on the same drive; None where there is no pair."""

    distance: Mean | None
    """From `supervised` with these labels to `supervised` with all, seed by seed."""

    closed: float | None
    """The share of that distance that the difference makes up for."""

    lengths: tuple[int, ...]
    """The iterations of its runs."""

    def as_json(self) -> dict[str, Any]:
        """By name; what is not known is null."""
        means = {"score": self.score, "difference": self.difference, "distance": self.distance}
        return {
            "row": self.row,
            "column": self.column,
            "iterations": list(self.lengths),
            **{name: found and found.as_json() for name, found in means.items()},
            "closed": self.closed,
        }


def measure(runs: Runs, row: str, column: str, all_labels: str, drives: Sequence[str]) -> PairedCell | None:
    """The cell of a row and a column, over these drives; None where no seed has all of them."""
    of_cell, beside, complete = (
        runs.get(place, {}) for place in ((row, column), (BASELINE, column), (BASELINE, all_labels))
    )
    seeds = sorted({seed for _, seed in of_cell})

    def over_drives(value: Callable[[tuple[str, int]], float | None]) -> Mean | None:
        found = {seed: [value((drive, seed)) for drive in drives] for seed in seeds}
        whole = {seed: mean(known) for seed, values in found.items() if len(known := _known(values)) == len(drives)}
        return Mean(whole) if whole else None

    score = over_drives(lambda place: of_cell[place].summary["value"] if place in of_cell else None)
    if score is None:
        return None
    difference = over_drives(lambda place: _gain(beside.get(place), of_cell.get(place))) if row != BASELINE else None
    distance = (
        over_drives(lambda place: _gain(beside.get(place), complete.get(place))) if column != all_labels else None
    )
    lengths = tuple(sorted({run.summary["iterations"] for (drive, _), run in of_cell.items() if drive in drives}))
    return PairedCell(row, column, score, difference, distance, _share(difference, distance), lengths)


def _gain(baseline: Trained | None, other: Trained | None) -> float | None:
    """The difference of two runs that are as long as each other, and differ in method and labels at most."""
    if baseline is None or other is None or baseline.summary["iterations"] != other.summary["iterations"]:
        return None
    if not alike(baseline.config, other.config):
        return None
    return float(other.summary["value"] - baseline.summary["value"])


def _share(difference: Mean | None, distance: Mean | None) -> float | None:
    """Of means over the seeds that have both; None where all labels are hardly better: a share would mean nothing."""
    if difference is None or distance is None:
        return None
    seeds = difference.by_seed.keys() & distance.by_seed.keys()
    if not seeds or (whole := mean(distance.by_seed[seed] for seed in seeds)) < SMALLEST_DISTANCE:
        return None
    return mean(difference.by_seed[seed] for seed in seeds) / whole


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
