"""The images that a run's model is judged by: a split of its own data set, or of another one with the same classes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from oneway import data, runs
from oneway.common.errors import UserError
from oneway.common.terms import SplitName
from oneway.common.words import counted, listed, say
from oneway.config import Data
from oneway.data.dataset import Dataset, Samples

NAMED = 5  # images that a message names


class NothingValidates(UserError):
    """A run has no images that it may be judged by."""


class ReadSplit(NamedTuple):
    """A split of a run's data set, or of another one."""

    dataset: Dataset
    samples: Samples
    seen: list[int]
    """Indices of samples whose labels the run was trained on: they are not scored."""


def read_split(
    run: runs.Run,
    split: SplitName,
    classes: tuple[str, ...],
    data_path: Path | None,
    console: Console,
    *,
    refresh: bool = False,
    cache: Path | None = None,
) -> ReadSplit:
    """A split of a run's data set, or of the same kind of data set in the folder `data_path`."""
    settings = runs.data_of(run, console, data_path, refresh=refresh, cache=cache)
    dataset = load_data(run, classes, settings, console, elsewhere=data_path is not None)
    samples = dataset.read(split)
    if not len(samples):
        raise NothingValidates(
            f"{run.path}: no image validates, since all that are labelled train (--data.holdout 0). Give others with "
            "labels, with --data DIR; `oneway eval --split train` says how well it fits those it has learnt from."
        )
    seen: list[int] = []
    if split != "train":
        if drafts := about_predictions(samples.names, dataset.predicted):
            say(console, f"Note: {drafts}")
        if data_path is None:
            refuse_trained_on(run, samples)
            if split == "val":
                compare_validating(run, samples, console)
        else:
            seen = leave_out_trained_on(run, samples, dataset.digests(split), data_path, console)
    return ReadSplit(dataset, samples, seen)


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


def refuse_trained_on(run: runs.Run, samples: Samples) -> None:
    """Refuses validation images that the run was trained on, as a validation set that is named later may have."""
    known = set(run.split.labelled)
    if trained_on := [name for name in samples.names[: samples.labelled] if name in known]:
        raise UserError(
            f"{run.path}: was trained on the labels of {listed(trained_on)}, which would validate it now that the "
            "images with labels are others. Train again, or give it images that it has not seen with --data DIR."
        )


def compare_validating(run: runs.Run, samples: Samples, console: Console) -> None:
    """Says where the images that validate a run are not those that did so in training, or not as they were."""
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
    if not split.digests and digests:
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


def load_data(
    run: runs.Run,
    classes: tuple[str, ...],
    settings: Data,
    console: Console,
    elsewhere: bool = False,
    validating: Collection[str] = (),
) -> Dataset:
    """A run's data, or those of another folder; refuses classes that are not the model's.

    In the run's own folder, the images validate that did so in training, whichever would be held out by now, or those
    in `validating`. In another one, all labelled images do, unless it has all those that the run was trained on, by
    name: then it is the run's own, moved.
    """
    all_validate = False
    if elsewhere and settings.name == "folder":
        labelled = {item.name for item in data.list_files(settings).items if item.mask}
        all_validate = not labelled >= set(run.split.labelled)
    dataset = data.load(settings, console, all_validate, data.Known({*(validating or run.split.validating)}, classes))
    if dataset.classes != classes:
        more, fewer = (
            [name for name in some if name not in rest]
            for some, rest in ((dataset.classes, classes), (classes, dataset.classes))
        )
        has = [f"has {listed(more)}, which {run.path} was not trained on"] if more else []
        lacks = [f"lacks {listed(fewer)}, which {run.path} was trained on"] if fewer else []
        own = run.config.data.path or "the run's own data"
        raise UserError(
            f"{settings.path}: {'; '.join(has + lacks) or f'has the classes of {run.path} in another order'}. Where "
            f"its labels mean the same, copy `classes:` of {own} into its dataset.yaml (`oneway check --save` writes "
            "that file where there is none)."
        )
    return dataset


def refuse_other_style(run: runs.Run, model: runs.TrainedModel, dataset: Dataset) -> None:
    """Refuses images of which other bands or bits are used than those that a model has learnt from."""
    if dataset.image_style != model.image_style:
        raise UserError(
            f"{run.path}: has learnt from {model.image_style} of images, and {dataset.image_style} would be shown to "
            "it. Let `bands` and `bits` in dataset.yaml be the same."
        )
