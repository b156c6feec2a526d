"""What is known about finished runs, read from their folders and checked to be comparable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oneway import runs
from oneway.common.errors import UserError
from oneway.common.words import command, listed
from oneway.config import Config
from oneway.data.folder import find
from oneway.data.folder.yaml_text import to_flow
from oneway.methods import METHODS
from oneway.tools.evaluate import METRIC_NAMES
from oneway.tools.intervals import Counts, Interval, interval_of, interval_of_gain

RUN_COLOURS = 6
"""Number of colours the style sheet has for runs: `--run-0` is the baseline's grey, `--run-1` the accent."""

NOT_LOSSES = frozenset({"iteration", "learning_rate", "skipped"})
"""What a line of `metrics.jsonl` with a learning rate has beside the losses of the method."""

DECIDE_VALIDATION = ("name", "resolution", "reduction", "size", "holdout", "holdout_drive", "seed", "path")
"""Settings of the data that decide what a model is validated on."""


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
        return None if self.by_image is None else interval_of(self.by_image)

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


def read_runs(paths: list[Path]) -> list[RunFacts]:
    """The facts of run folders, the baseline first. Refuses runs that have not ended or cannot be compared."""
    if not paths:
        raise UserError("No run folder given. Name at least one: oneway report runs/quickstart/simple-phtps")
    opened = [runs.open_run(path) for path in paths]
    names = _names([run.config for run in opened], paths)
    # A single run has the accent colour, unless its method is the baseline.
    alone = [int(not METHODS[opened[0].config.method].supervised)]
    colours = alone if len(opened) == 1 else [index % RUN_COLOURS for index in range(len(opened))]
    facts = [_read(run, name, colour) for run, name, colour in zip(opened, names, colours, strict=True)]
    for other in facts[1:] if not common_images(facts) else ():
        _refuse_if_incomparable(facts[0], other)
    return facts


def common_images(facts: Sequence[RunFacts]) -> list[str]:
    """The images by which runs of one folder can be compared that were validated by different ones.

    They validated one of the runs, and their labels taught none. None where all validation images are the same, or
    where more than these differs.
    """
    first = facts[0]
    settings = [run.config.data.model_dump(include={*DECIDE_VALIDATION} - {"holdout", "seed"}) for run in facts]
    alike = all(run.classes == first.classes and run.validating for run in facts) and settings.count(settings[0])
    if first.config.data.name != "folder" or alike != len(facts) or len({run.validation for run in facts}) == 1:
        return []
    taught = {name for run in facts for name in run.labelled}
    return sorted({name for run in facts for name in run.validating} - taught)


def interval_between(before: RunFacts, after: RunFacts) -> Interval | None:
    """Where the difference of two runs, which the same images validated, would lie with other images."""
    if before.by_image is None or after.by_image is None:
        return None
    return interval_of_gain(before.by_image, after.by_image)


def differing_settings(facts: list[RunFacts]) -> dict[str, list[Any]]:
    """Dotted keys of the configuration whose values are not the same in all runs, with the value in each."""
    flat = [run.config.flat() for run in facts]
    rows = {key: [settings[key] for settings in flat] for key in flat[0]}
    return {key: values for key, values in rows.items() if any(value != values[0] for value in values)}


def _read(run: runs.Run, name: str, colour: int) -> RunFacts:
    summary = run.summary
    if summary is None:
        raise runs.not_ended(run.path)
    split = run.split
    return RunFacts(
        folder=run,
        name=name,
        colour=colour,
        labelled=split.labelled,
        further=split.further,
        validation=split.validation,
        environment=run.environment,
        metrics=tuple(run.metrics()),
        metric=summary["metric"],
        value=math.nan if summary["value"] is None else summary["value"],
        per_class=summary["per_class"],
        absent=tuple(summary["absent"]),
        confusion=(confusion := np.array(summary["confusion"], dtype=np.int64)),
        by_image=_by_image(run, split.validating, confusion),
        validation_samples=summary["validation_samples"],
        validating=split.validating,
        about_images=tuple(summary.get("about_images", ())),
        iterations=summary["iterations"],
        seconds=summary["seconds"],
        peak_memory_mib=summary["peak_memory_mib"],
    )


def _by_image(run: runs.Run, validating: Sequence[str], confusion: npt.NDArray[np.int64]) -> Counts | None:
    """The counts of each image that validates, where a run has kept them, and they are those of its scores."""
    lines = run.validation
    if [line["image"] for line in lines] != [*validating] or any(len(line["hits"]) != len(confusion) for line in lines):
        return None
    kept = [[line[kind] for kind in ("hits", "labelled", "predicted")] for line in lines]
    counts = np.array(kept, dtype=np.int64).reshape(-1, 3, len(confusion))
    sums = np.array([confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)])
    return counts if np.array_equal(counts.sum(axis=0), sums) else None


def _names(configs: list[Config], paths: list[Path]) -> list[str]:
    """The methods; where one occurs twice, also what else differs between the runs, in the last resort the folder."""
    names: list[str] = [config.method for config in configs]
    for parts in (
        [config.variant for config in configs],
        ["1 label" if config.labels == "1" else f"{config.labels} labels" for config in configs],
        [f"seed {config.seed}" for config in configs],
        [str(path) for path in paths],
    ):
        if len(set(names)) < len(names) and len(set(parts)) > 1:
            names = [f"{name} · {part}" for name, part in zip(names, parts, strict=True)]
    return names


def _refuse_if_incomparable(first: RunFacts, other: RunFacts) -> None:
    if first.classes != other.classes:
        raise _other_classes(first, other)
    if differences := list(_differences(first, other)):
        again = (
            "; or train both with the same validation images, by a `val` in dataset.yaml, such as "
            f"`{_val_line(first)}` with the names of some images in val.txt, one on each line"
        )
        raise UserError(
            f"{first.path} and {other.path} cannot be compared: they differ in {'; '.join(differences)}. "
            f"Write a report about each{again if first.validation != other.validation else ''}."
        )


def _other_classes(first: RunFacts, other: RunFacts) -> UserError:
    """The error for runs whose classes differ, with the commands that score both on those that they share."""
    common = [name for name in first.classes if name in other.classes]
    alone = [
        f"{listed([name for name in one.classes if name not in common])} only in {one.path}"
        for one in (first, other)
        if len(one.classes) > len(common)
    ]
    text = f"{first.path} and {other.path} cannot be compared: classes are {'; '.join(alone) or 'in another order'}."
    if not common or {run.config.data.name for run in (first, other)} != {"folder"}:
        return UserError(f"{text} Write a report about each.")
    both = "; ".join(command("oneway", "eval", run.path, "--data", "DIR") for run in (first, other))
    return UserError(
        f"{text} For comparable scores: {both}, with new images in DIR that have masks, and a dataset.yaml in which "
        f"`classes` names only {listed(common, 6)}, and `ignore` the values of all others."
    )


def _val_line(run: RunFacts) -> str:
    """The line of `dataset.yaml` that names images of a run's folder to validate, where its training images are."""
    folders = {"images": "images", "masks": "masks"}
    if run.config.data.name == "folder" and run.config.data.path is not None:
        with suppress(UserError):  # it may be gone
            train = find(run.config.data.path).description.train
            folders = train.model_dump(exclude_none=True) if train else folders
    return f"val: {to_flow({**folders, 'list': 'val.txt'})}"


def _differences(first: RunFacts, other: RunFacts) -> Iterator[str]:
    """What differs in the validation data. The training data may differ: they may be what is compared."""
    if not first.validation_samples and not other.validation_samples:
        yield "scores, of which neither has any (--data.holdout 0)"
    if first.validation == other.validation:
        return
    of_first, of_other = (run.config.data.model_dump(mode="json") for run in (first, other))
    for key in DECIDE_VALIDATION:
        if of_first[key] != of_other[key]:
            yield f"data.{key}: {of_first[key]} → {of_other[key]}"
    one, two = ({*run.validating} for run in (first, other))
    if not one or not two:
        yield f"content of the validation data: {first.validation[:8]} → {other.validation[:8]}"
    elif one == two:
        yield "content of the validation images, whose names are the same"
    else:
        alone = {"first": sorted(one - two), "second": sorted(two - one)}
        sides = [f"{listed(names)} validated only the {which}" for which, names in alone.items() if names]
        yield f"validation images: {', '.join(sides)}"
