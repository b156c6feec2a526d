"""Reads the facts of finished runs from their folders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oneway import runs
from oneway.common.errors import UserError
from oneway.config import Config
from oneway.methods import METHODS
from oneway.tools.intervals import Counts
from oneway.tools.report.comparable import common_images, refuse_if_incomparable
from oneway.tools.report.facts import RUN_COLOURS, RunFacts


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
        refuse_if_incomparable(facts[0], other)
    return facts


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
        groups=_groups(run),
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


def _groups(run: runs.Run) -> tuple[str, ...]:
    groups = [line.get("group") for line in run.validation]
    return tuple(group for group in groups if group is not None) if None not in groups else ()
