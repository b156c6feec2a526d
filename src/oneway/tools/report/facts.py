"""What is known about finished runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oneway import runs
from oneway.config import Config
from oneway.methods import METHODS
from oneway.tools.evaluate import METRIC_NAMES
from oneway.tools.intervals import Counts, Interval, interval_of, interval_of_gain, together

RUN_COLOURS = 6
"""Number of colours the style sheet has for runs: `--run-0` is the baseline's grey, `--run-1` the accent."""

NOT_LOSSES = frozenset({"iteration", "learning_rate", "skipped"})
"""What a line of `metrics.jsonl` with a learning rate has beside the losses of the method."""


@dataclass(frozen=True)
class Series:
    """A value over iterations."""

    iterations: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class RunFacts:
    """One finished run."""

    folder: runs.Run
    name: str  # no two on the page are the same
    colour: int  # index k of the style sheet's --run-k
    labelled: tuple[str, ...]
    further: int  # unlabelled images that are not among the labelled ones
    validation: str  # a digest of the validation data
    environment: dict[str, Any]
    metrics: tuple[dict[str, Any], ...]
    metric: str  # as summaries call it
    value: float  # percent; not a number where no image validates
    per_class: dict[str, float | None]  # percent; None where a class does not occur
    absent: tuple[str, ...]  # classes without a pixel in the validation images
    confusion: npt.NDArray[np.int64]  # C×C, rows are true classes
    by_image: Counts | None  # of the same pixels; not known of earlier versions, nor where whole images are classified
    groups: tuple[str, ...]  # of each image among these, where it is known which belong together
    validation_samples: int
    validating: tuple[str, ...]  # names of the images that validate; none of runs of earlier versions
    about_images: tuple[str, ...]  # what was said about them before it was trained
    iterations: int
    seconds: float
    peak_memory_mib: float

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def config(self) -> Config:
        return self.folder.config

    @property
    def metric_name(self) -> str:
        return METRIC_NAMES[self.metric]

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels."""
        return tuple(self.per_class)

    @property
    def semi_supervised(self) -> bool:
        """Whether unlabelled images were used."""
        return not METHODS[self.config.method].supervised

    @cached_property
    def interval(self) -> Interval | None:
        """Where its mIoU would lie with other validation images."""
        return None if self.drawn is None else interval_of(self.drawn)

    @property
    def drawn(self) -> Counts | None:
        """The counts of what an interval draws: of groups where they are known, or else of images."""
        return None if self.by_image is None else together(self.by_image, self.groups)

    @property
    def row_shares(self) -> npt.NDArray[np.float64]:
        """C×C: which share of a true class's pixels was given each class. Rows of absent classes are zero."""
        shares: npt.NDArray[np.float64] = self.confusion / np.maximum(self.confusion.sum(axis=1, keepdims=True), 1)
        return shares

    @property
    def losses(self) -> list[str]:
        """The names of the losses that the method logged, in its order."""
        return losses_in(self.metrics)

    def series(self, key: str) -> Series:
        """A logged value over iterations; empty where the run has no such value."""
        return series_in(self.metrics, key)


def losses_in(metrics: Sequence[dict[str, Any]]) -> list[str]:
    """The names of the losses in lines of `metrics.jsonl`, in the order of the method."""
    names = (key for line in metrics if "learning_rate" in line for key in line)
    return [name for name in dict.fromkeys(names) if name not in NOT_LOSSES]


def curve_titles(metric: str, losses: Iterable[str]) -> dict[str, str]:
    """What a page draws over iterations, by its key in `metrics.jsonl`: the metric on validation, and the losses."""
    validation = f"Validation {METRIC_NAMES[metric]}, %"
    return {metric: validation, **{name: f"{name[:1].upper()}{name[1:]} loss" for name in losses}}


def series_in(metrics: Sequence[dict[str, Any]], key: str) -> Series:
    """A value over iterations in lines of `metrics.jsonl`."""
    lines = [line for line in metrics if key in line]
    return Series(tuple(line["iteration"] for line in lines), tuple(line[key] for line in lines))


def interval_between(before: RunFacts, after: RunFacts) -> Interval | None:
    """Where the difference of two runs, which the same images validated, would lie with other images."""
    if before.by_image is None or after.by_image is None:
        return None
    groups = after.groups or before.groups
    return interval_of_gain(together(before.by_image, groups), together(after.by_image, groups))


def differing_settings(facts: list[RunFacts]) -> dict[str, list[Any]]:
    """Dotted keys of the configuration whose values are not the same in all runs, with the value in each."""
    flat = [run.config.flat() for run in facts]
    rows = {key: [settings[key] for settings in flat] for key in flat[0]}
    return {key: values for key, values in rows.items() if any(value != values[0] for value in values)}
