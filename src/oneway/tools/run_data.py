"""The images that a run's model is judged by: a split of its own data set, or of another one with the same classes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from oneway import data, runs
from oneway.common.errors import UserError
from oneway.common.run_files import MODEL
from oneway.common.terms import SplitName
from oneway.common.words import counted, listed, say
from oneway.config import Config, Data
from oneway.data.dataset import Colour, Dataset, Samples
from oneway.data.folder.classes import is_placeholder
from oneway.data.folder.description import to_flow
from oneway.data.image_style import ImageStyle
from oneway.data.mask_style import MaskStyle
from oneway.data.splits import DIGITS, Split

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
    masks: MaskStyle | None = None,
) -> ReadSplit:
    """A split of a run's data set, or of the same kind of data set in the folder `data_path`; see `load_data`."""
    settings = runs.data_of(run, console, data_path, refresh=refresh, cache=cache)
    dataset = load_data(run, classes, settings, console, elsewhere=data_path is not None, masks=masks)
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
            if doubt := about_beginning(run.path, run.split, dataset, samples.names, split):
                say(console, f"Note: {doubt}")
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


def load_data(
    run: runs.Run,
    classes: tuple[str, ...],
    settings: Data,
    console: Console,
    elsewhere: bool = False,
    validating: Collection[str] = (),
    masks: MaskStyle | None = None,
) -> Dataset:
    """A run's data, or those of another folder; refuses classes that are not the model's, which learnt from `masks`.

    In the run's own folder, the images validate that did so in training, whichever would be held out by now, or those
    in `validating`. In another one, all labelled images do, unless it has all those that the run was trained on, by
    name: then it is the run's own, moved.
    """
    all_validate, known = False, data.Known({*(validating or run.split.validating)}, classes, masks)
    if elsewhere and settings.name == "folder":
        labelled = {item.name for item in data.list_files(settings, known=known).items if item.mask}
        all_validate = isinstance(run, runs.ModelAlone) or not labelled >= set(run.split.labelled)
    dataset = data.load(settings, console, all_validate, known)
    if dataset.classes != classes:
        raise _other_classes(run, classes, masks, dataset, settings)
    if masks is not None and dataset.masks is not None:
        _refuse_other_values(run, classes, masks, dataset.masks, settings)
    if elsewhere and dataset.read_as:
        say(console, f"Note: {settings.path}: {dataset.read_as}.")
    return dataset


def _other_classes(
    run: runs.Run, classes: Sequence[str], masks: MaskStyle | None, dataset: Dataset, settings: Data
) -> UserError:
    """The error about data with other classes than those of a model, which learnt from `masks`; with the way out."""
    more, fewer = (
        [name for name in some if name not in rest]
        for some, rest in ((dataset.classes, classes), (classes, dataset.classes))
    )
    has = [f"has {listed(more)}, which {run.path} was not trained on"] if more else []
    lacks = [f"lacks {listed(fewer)}, which {run.path} was trained on"] if fewer else []
    style = None if dataset.masks is None else masks
    way_out = f"write `classes: {_classes_line(classes, style)}` into its dataset.yaml"
    if dataset.masks is None and more:  # a list of classes has to have all that are drawn
        way_out = f"call what is drawn as there: {listed(classes, None)}"
    return UserError(
        f"{settings.path}: {'; '.join(has + lacks) or f'has the classes of {run.path} in another order'}. Where "
        f"its labels mean the same, {way_out}."
    )


def _classes_line(classes: Sequence[str], masks: MaskStyle | None) -> str:
    """The classes as a `dataset.yaml` has them, with the values of such masks where these are not their numbers."""
    numbers, colours = ([*masks.table(coloured)] if masks else [] for coloured in (False, True))
    if len(colours) == len(classes) and len(numbers) != len(classes):
        return to_flow(dict(zip(classes, colours, strict=True)))
    plain = len(numbers) != len(classes) or numbers == [*range(len(classes))]
    return to_flow([*classes] if plain else dict(zip(numbers, classes, strict=True)))


def _refuse_other_values(
    run: runs.Run, classes: Sequence[str], before: MaskStyle, now: MaskStyle, settings: Data
) -> None:
    """Refuse classes without names of their own, such as `class 3`, that masks hold other values for than the run's.

    Such names count the values, and say nothing about what they stand for.
    """
    for label, name in reversed([*enumerate(classes)]):  # the first is often 0 and black, which are alike
        taught, found = (style.stands_for(label) for style in (before, now))
        if is_placeholder(name) and taught.isdisjoint(found):
            raise UserError(
                f"{settings.path}: its masks hold {_shown(found)} for {name}, and those that taught {run.path} "
                f"{_shown(taught)}: such names count values, and say nothing about what they stand for. Save these "
                "masks with the values of the others, and leave `classes` out of its dataset.yaml; or train with names "
                "for all classes."
            )


def _shown(values: Collection[int | Colour]) -> str:
    return listed((list(value) if isinstance(value, tuple) else value for value in values), joint="or")


def refuse_other_style(path: Path | str, learnt: ImageStyle, dataset: Dataset) -> None:
    """Refuse images of which other bands or bits are used than those that the model of a run has learnt from."""
    if dataset.image_style != learnt:
        raise UserError(
            f"{path}: has learnt from {learnt} of images, and {dataset.image_style} would be shown to "
            "it. Let `bands` and `bits` in dataset.yaml be the same."
        )
