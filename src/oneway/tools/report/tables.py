"""The tables of the page: rows by their names, with a cell for each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from oneway.tools.evaluate import Scores
from oneway.tools.intervals import miou_of_images
from oneway.tools.report.class_words import most_confused, present_classes
from oneway.tools.report.facts import RunFacts


def hardest_first(runs: Sequence[RunFacts]) -> list[tuple[str, list[str]]]:
    """The images that validate, with the mIoU of each run where all have kept it; the worst of the last run first."""
    names = runs[-1].validating
    if any(run.by_image is None or run.validating != names for run in runs):
        return [(name, []) for name in names]
    values = np.stack([miou_of_images(run.by_image) for run in runs if run.by_image is not None], axis=1)
    return [
        (names[place], ["–" if np.isnan(value) else f"{value:.1f}" for value in values[place]])
        for place in np.argsort(values[:, -1], kind="stable")
    ]


def confused(runs: Sequence[RunFacts]) -> dict[str, list[str]]:
    """For each class of the validation images and each run: what its pixels are taken for most often."""
    found = [most_confused(run) for run in runs]
    return {
        name: [f"{other[0]} {other[1]:.1f} %" if (other := of_run[name]) else "–" for of_run in found]
        for name in present_classes(runs[0])
    }


def precision(runs: Sequence[RunFacts]) -> dict[str, list[str]]:
    """For each class and each run: the share of the pixels taken for it that are of it."""
    found = [Scores(torch.from_numpy(run.confusion)).precision for run in runs]
    rows = zip(runs[0].classes, zip(*found, strict=True), strict=True)
    shown = {name: ["–" if value is None else f"{value:.1f} %" for value in values] for name, values in rows}
    return {name: values for name, values in shown.items() if {*values} != {"–"}}


def origin(runs: Sequence[RunFacts]) -> dict[str, list[str]]:
    """Where each run comes from; a single value where it is the same for all."""
    rows = {
        "command": [run.environment["command"] for run in runs],
        "started": [run.environment["started"] for run in runs],
        "hardware": [run.environment["hardware"] for run in runs],
        "platform": [run.environment["platform"] for run in runs],
        "versions": [
            ", ".join(f"{name} {version}" for name, version in run.environment["versions"].items())
            + f", Python {run.environment['python']}"
            for run in runs
        ],
        "commit": [_commit(run.environment) for run in runs],
    }
    return {key: values[:1] if len(set(values)) == 1 else values for key, values in rows.items()}


def _commit(environment: dict[str, Any]) -> str:
    if environment["commit"] is None:
        return "not a source checkout"
    return environment["commit"] + (", with uncommitted changes" if environment.get("uncommitted") else "")
