"""Which runs can stand on one page: those that the same images validated, or images that all of them left alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from oneway.common.errors import UserError
from oneway.common.words import command, listed
from oneway.data.folder import find
from oneway.data.folder.yaml_text import to_flow
from oneway.tools.report.facts import RunFacts

DECIDE_VALIDATION = ("name", "resolution", "reduction", "size", "holdout", "holdout_drive", "seed", "path")
"""Settings of the data that decide what a model is validated on."""


def common_images(facts: Sequence[RunFacts]) -> list[str]:
    """The images by which runs of one folder can be compared that were validated by different ones.

    They validated one of the runs, and their labels taught none. None where all validation images are the same, or
    where more than these differs.
    """
    settings = [run.config.data.model_dump(include={*DECIDE_VALIDATION} - {"holdout", "seed"}) for run in facts]
    same_but_drawn = all(
        run.config.data.name == "folder" and run.classes == facts[0].classes and given == settings[0]
        for run, given in zip(facts, settings, strict=True)
    )
    all_known = all(run.validating for run in facts)
    if not same_but_drawn or not all_known or len({run.validation for run in facts}) == 1:
        return []
    taught = {name for run in facts for name in run.labelled}
    return sorted({name for run in facts for name in run.validating} - taught)


def refuse_if_incomparable(first: RunFacts, other: RunFacts) -> None:
    """Refuse two runs with other classes, or whose scores are of other images."""
    if first.classes != other.classes:
        raise _other_classes(first, other)
    if differences := list(_differences(first, other)):
        way_out = "Write a report about each"
        if first.validation != other.validation:
            way_out += (
                "; or train both with the same validation images, by a `val` in dataset.yaml, such as "
                f"`{_val_line(first)}` with the names of some images in val.txt, one on each line"
            )
        raise UserError(
            f"{first.path} and {other.path} cannot be compared: they differ in {'; '.join(differences)}. {way_out}."
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


def _val_line(run: RunFacts) -> str:
    """The line of `dataset.yaml` that names images of a run's folder to validate, where its training images are."""
    folders = {"images": "images", "masks": "masks"}
    if run.config.data.name == "folder" and run.config.data.path is not None:
        with suppress(UserError):  # it may be gone
            train = find(run.config.data.path).description.train
            folders = train.model_dump(exclude_none=True) if train else folders
    return f"val: {to_flow({**folders, 'list': 'val.txt'})}"
