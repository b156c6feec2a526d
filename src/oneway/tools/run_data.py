"""The images that a run's model is judged by: a split of its own data set, or of another one with the same classes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from oneway import data, runs
from oneway.common.errors import UserError
from oneway.common.terms import SplitName
from oneway.common.words import listed, say
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
    refresh: bool = False,
    cache: Path | None = None,
) -> ReadSplit:
    """A split of a run's data set, or of the same kind of data set in the folder `data_path`."""
    settings = runs.data_of(run, console, data_path, refresh, cache)
    dataset = load_data(run, classes, settings, console, elsewhere=data_path is not None)
    samples = dataset.read(split)
    if not len(samples):
        raise NothingValidates(
            f"{run.path}: no image validates, since all that are labelled train (--data.holdout 0). Give others with "
            "labels, with --data DIR; `oneway eval --split train` says how well it fits those it has learnt from."
        )
    seen: list[int] = []
    if split != "train":
        if data_path is None:
            refuse_trained_on(run, samples)
        else:
            seen = leave_out_trained_on(run, samples, dataset.digests(split), data_path, console)
    return ReadSplit(dataset, samples, seen)


def refuse_trained_on(run: runs.Run, samples: Samples) -> None:
    """Refuses validation images that the run was trained on: the held-out share of a folder changes with its files."""
    known = set(run.split.labelled)
    if trained_on := [name for name in samples.names[: samples.labelled] if name in known]:
        raise UserError(
            f"{run.path}: was trained on the labels of {listed(trained_on)}, which would validate it now that the "
            "images with labels are others. Train again, or give it images that it has not seen with --data DIR."
        )


def leave_out_trained_on(
    run: runs.Run, samples: Samples, digests: Mapping[str, str], folder: Path, console: Console
) -> list[int]:
    """The indices of samples on whose labels a run was trained, recognised by content; says what it finds.

    Raises:
        UserError: No other is left.
    """
    split = run.split
    if not split.digests and digests:
        say(
            console,
            f"Note: an earlier version trained {run.path}: images in {folder} that taught it are not recognised.",
        )
    roles = {name: split.taught_by(digests.get(name, "")) for name in samples.names[: samples.labelled]}
    taught, seen = ([name for name in roles if roles[name] == role] for role in ("labelled", "unlabelled"))
    if taught and len(taught) == samples.labelled:
        raise UserError(
            f"{folder}: {run.path} was trained on the labels of all its {samples.labelled} images to evaluate "
            f"({listed(taught, NAMED)}). Give it images that it has not seen."
        )
    if taught:
        so = f"scores are of the other {samples.labelled - len(taught)}"
        say(
            console,
            f"Left out: {len(taught)} of {samples.labelled} images, whose labels taught {run.path} "
            f"({listed(taught, NAMED)}); {so}.",
        )
    if seen:
        say(console, f"Note: {run.path} has seen {len(seen)} of these images without labels ({listed(seen, NAMED)}).")
    return [number for number, name in enumerate(roles) if roles[name] == "labelled"]


def load_data(
    run: runs.Run, classes: tuple[str, ...], settings: Data, console: Console, elsewhere: bool = False
) -> Dataset:
    """A run's data, or those of another folder; refuses classes that are not the model's.

    In another folder, all labelled images validate, unless it has all those that the run was trained on, by name: then
    it is the run's own folder, moved, and is split as before.
    """
    all_validate = False
    if elsewhere and settings.name == "folder":
        labelled = {item.name for item in data.list_files(settings).train if item.mask}
        all_validate = not labelled >= set(run.split.labelled)
    dataset = data.load(settings, console, all_validate)
    if dataset.classes != classes:
        raise UserError(
            f"{settings.path}: has the classes {', '.join(dataset.classes)}; {run.path} was trained on "
            f"{', '.join(classes)}. Give a data set with the same classes in the same order."
        )
    return dataset


def refuse_other_bands(run: runs.Run, model: runs.TrainedModel, dataset: Dataset) -> None:
    """Refuses images of which other bands are used than those that a model has learnt from."""
    if dataset.bands != model.bands:
        bands = [f"bands {listed(found)}" if found else "the colours" for found in (dataset.bands, model.bands)]
        raise UserError(
            f"{run.path}: has learnt from {bands[1]} of images (`bands` in dataset.yaml), and {bands[0]} would be "
            "shown to it. Let dataset.yaml name the same."
        )
