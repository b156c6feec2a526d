"""Where images that judge a run meet what it has learnt from: scores of these are refused, left out, or doubted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from oneway import runs
from oneway.common.errors import UserError
from oneway.common.run_files import MODEL
from oneway.common.terms import SplitName
from oneway.common.words import counted, listed, say
from oneway.config import Config
from oneway.data.dataset import Dataset, Samples
from oneway.data.splits import DIGITS, Split

NAMED = 5  # images that a message names


def about_predictions(validating: Sequence[str], predicted: Collection[str]) -> str:
    """A caution where some of the images that judge a model have masks that a model drew; else nothing."""
    if not (made := [name for name in validating if name in predicted]):
        return ""
    are, them = ("is", "it") if len(made) == 1 else ("are", "them")
    return (
        f"{len(made)} of {counted(len(validating), 'mask')} behind these scores {are} as `oneway predict` wrote "
        f"{them} ({listed(made, NAMED)}): there, scores say how much models agree, and not how good they are. Correct "
        f"what is wrong, and save {them} anew."
    )


def taught_before(config: Config) -> tuple[str, ...]:
    """Digests of the images whose labels taught what a run begins with, as far as the runs it comes from tell."""
    places = [Path(place) for place in (config.model.weights, config.teacher) if place not in (None, "imagenet")]
    taught: set[str] = set()
    for place in places:
        with suppress(UserError):  # it may be no run, or a model without its run
            earlier = runs.open_run(place.parent if place.name == MODEL else place, any_method=True)
            taught.update(earlier.split.taught)
    return tuple(sorted(taught))


def about_beginning(
    path: Path, split: Split, dataset: Dataset, validating: Sequence[str], part: SplitName = "val"
) -> str:
    """A caution where labels of images that judge a run taught what it began with; else nothing."""
    if not (before := set(split.began_with)):
        return ""
    digests = dataset.digests(part)
    if not (taught := [name for name in validating if digests.get(name, "")[:DIGITS] in before]):
        return ""
    return (
        f"{path} began with a model that had learnt the labels of {len(taught)} of the "
        f"{counted(len(validating), 'image')} behind these scores ({listed(taught, NAMED)}): they are too high. Name "
        "images that taught neither in `val` of dataset.yaml, or begin with other weights."
    )


def refuse_trained_on(run: runs.Run, samples: Samples) -> None:
    """Refuse validation images that the run was trained on, as a validation set that is named later may have."""
    known = set(run.split.labelled)
    if trained_on := [name for name in samples.names[: samples.labelled] if name in known]:
        raise UserError(
            f"{run.path}: was trained on the labels of {listed(trained_on)}, which would validate it now that the "
            "images with labels are others. Train again, or give it images that it has not seen with --data DIR."
        )


def compare_validating(run: runs.Run, samples: Samples, console: Console) -> None:
    """Say where the images that validate a run are not those that did so in training, or not as they were."""
    before, now = run.split.validating, samples.names
    if not before:  # of an earlier version
        return
    gone, others = ([name for name in some if name not in rest] for some, rest in ((before, {*now}), (now, {*before})))
    if others:
        both = (("new", others), ("no longer", gone))
        sides = "; ".join(f"{len(some)} {what}: {listed(some, NAMED)}" for what, some in both if some)
        note = (
            f"other images validate {run.path} than in training ({sides}): a `val` names them now, or those of "
            "training are gone. Scores are of these."
        )
    elif gone:
        note = (
            f"{len(gone)} of the {len(before)} images that validated {run.path} in training "
            f"{'is' if len(gone) == 1 else 'are'} gone, or without labels ({listed(gone, NAMED)}): scores are of the "
            f"other {len(now)}."
        )
    elif samples.content != run.split.validation:
        which = f"the images that validate {run.path}, or their labels,"
        note = f"{which} are not as they were in training: nor are scores."
    else:
        return
    say(console, f"Note: {note}")


def leave_out_trained_on(
    run: runs.Run, samples: Samples, digests: Mapping[str, str], folder: Path, console: Console
) -> list[int]:
    """The indices of samples on whose labels a run was trained, recognised by content; says what it finds.

    Raises:
        UserError: No other is left.
    """
    split = run.split
    if isinstance(run, runs.ModelAlone):
        say(
            console,
            f"Note: {run.path} does not say which images taught it. Where some of these did, scores are too high.",
        )
    elif not split.digests and digests:
        gap = f"images in {folder} that taught it are not recognised"
        say(console, f"Note: an earlier version trained {run.path}: {gap}.")
    roles = {name: split.taught_by(digests.get(name, "")) for name in samples.names[: samples.labelled]}
    taught, seen = ([name for name in roles if roles[name] == role] for role in ("labelled", "unlabelled"))
    if taught and len(taught) == samples.labelled:
        raise UserError(
            f"{folder}: {run.path} was trained on the labels of all its {samples.labelled} images to evaluate "
            f"({listed(taught, NAMED)}). Give it images that it has not seen."
        )
    if taught:
        some, others = f"{len(taught)} of {samples.labelled} images", samples.labelled - len(taught)
        whose = f"whose labels taught {run.path} ({listed(taught, NAMED)})"
        say(console, f"Left out: {some}, {whose}; scores are of the other {others}.")
    if seen:
        say(console, f"Note: {run.path} has seen {len(seen)} of these images without labels ({listed(seen, NAMED)}).")
    return [number for number, name in enumerate(roles) if roles[name] == "labelled"]
