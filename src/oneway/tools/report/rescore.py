"""Runs of one folder that were validated by different images, scored again by the same ones, which taught none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from oneway.common.errors import UserError
from oneway.common.words import counted, listed
from oneway.data import Samples
from oneway.runs import TrainedModel
from oneway.tools.evaluate import evaluate
from oneway.tools.report.facts import RunFacts


def without_predictions(runs: Sequence[RunFacts], images: Sequence[str], predicted: Collection[str]) -> list[str]:
    """Images by which runs can be compared, without those whose masks a model drew; a UserError if none is left."""
    if rest := [name for name in images if name not in predicted]:
        return rest
    raise UserError(
        f"{runs[0].path} and {runs[-1].path} cannot be compared: they were validated by different images, and those "
        f"whose labels taught none of them have masks as `oneway predict` wrote them ({listed(images, 5)}). Correct "
        "some, and save them anew."
    )


def rescore(
    runs: Sequence[RunFacts], models: Sequence[TrainedModel], samples: Samples, images: Sequence[str]
) -> tuple[list[RunFacts], str]:
    """The runs with the scores of their models on samples, which are to be `images`; and a sentence about that."""
    if not len(samples) or {*samples.names} - {*images}:
        raise UserError(
            f"{runs[0].path} and {runs[-1].path} cannot be compared: they were validated by different images, and "
            f"dataset.yaml now names others ({listed(samples.names)}). Train both again, or write a report about each."
        )
    found = []
    for run, model in zip(runs, models, strict=True):
        scores = evaluate(model.network, samples, len(model.classes))
        new = replace(
            run,
            value=scores.value,
            per_class=dict(zip(model.classes, scores.per_class, strict=True)),
            absent=tuple(model.classes[index] for index in scores.absent),
            confusion=scores.confusion.numpy().astype(np.int64),
            by_image=scores.by_image,
            groups=scores.groups,
            validation=samples.content,
            validation_samples=len(samples),
            validating=samples.names,
        )
        found.append(new)
    seen = {run.name: {*samples.names} & {*run.folder.split.unlabelled} for run in runs if run.semi_supervised}
    notes = "".join(
        f" {name} has learnt from {len(some)} of them without labels." for name, some in seen.items() if some
    )
    return found, (
        f"These runs were validated by different images, so all are scored here by {counted(len(samples), 'image')} "
        f"whose labels taught none of them ({listed(samples.names, 5)}).{notes} Curves are of each run's own images."
    )
