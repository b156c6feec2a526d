"""The images that a run's model is judged by: a split of its own data set, or of another one with the same classes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from oneway import data, runs
from oneway.common.errors import UserError
from oneway.common.terms import SplitName
from oneway.common.words import listed, say
from oneway.config import Data
from oneway.data.dataset import Colour, Dataset, Samples
from oneway.data.folder.classes import is_placeholder
from oneway.data.folder.yaml_text import to_flow
from oneway.data.image_style import ImageStyle
from oneway.data.mask_style import MaskStyle
from oneway.tools.trained_on import (
    about_beginning,
    about_predictions,
    compare_validating,
    leave_out_trained_on,
    refuse_trained_on,
)


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
        labelled = {item.name for item in data.list_files(settings, known=known).items if item.labelled}
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
