"""How good a model is: confusion matrix, IoU per class and their mean, accuracy.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from oneway import data, runs
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE, SplitName, Task
from oneway.common.words import listed, say
from oneway.config import Data
from oneway.data.dataset import Dataset, Samples
from oneway.engine.ranks import ALONE, Ranks
from oneway.models.mirrored import Mirrored
from oneway.models.norm import population_statistics
from oneway.ops.losses import pixels_of, upsample
from oneway.tools.windows import SMALLEST, predict_in_windows

PIXELS_AT_ONCE = 2**20
"""Bounds the memory that a batch of predictions takes."""
NAMED = 5  # images that a message names
CPU = torch.device("cpu")
METRIC_NAMES = {"miou": "mIoU", "accuracy": "accuracy"}
METRICS: dict[Task, Literal["miou", "accuracy"]] = {"segmentation": "miou", "classification": "accuracy"}


@dataclass(frozen=True)
class Scores:
    """What a confusion matrix (C×C, rows are true classes, columns predictions) says about a task."""

    confusion: Tensor
    task: Task = "segmentation"

    @property
    def metric(self) -> Literal["miou", "accuracy"]:
        """What `value` is."""
        return METRICS[self.task]

    @property
    def value(self) -> float:
        """Percent: mean IoU over the classes that the labels have, or the share of correct predictions."""
        if self.task == "classification":
            return 100 * int(self.confusion.diagonal().sum()) / int(self.confusion.sum())
        present = [value for value in self.per_class if value is not None]
        return sum(present) / max(1, len(present))

    @property
    def per_class(self) -> list[float | None]:
        """Percent: IoU, or the share of a class that is recognised. None where a class does not occur.

        One that is predicted all the same takes those pixels from the classes that they are of, and a zero of its own
        would weigh a single such pixel as much as a whole class.
        """
        matrix = self.confusion.double()
        hits, occurring = matrix.diagonal(), matrix.sum(dim=1)
        out_of = occurring + matrix.sum(dim=0) - hits if self.task == "segmentation" else occurring
        rows = zip(hits, out_of, occurring > 0, strict=True)
        return [100 * float(hit / total) if occurs else None for hit, total, occurs in rows]

    @property
    def absent(self) -> list[int]:
        """Classes that do not occur."""
        return torch.nonzero(self.confusion.sum(dim=1) == 0).flatten().tolist()


def confusion_matrix(predictions: Tensor, labels: Tensor, classes: int) -> Tensor:
    """C×C counts over the labels (N×H×W or N) that are not ignored."""
    counted = labels != IGNORE
    cells = labels[counted].long() * classes + predictions[counted].long()
    return torch.bincount(cells, minlength=classes**2).view(classes, classes)


def evenly_spaced(available: int, count: int) -> list[int]:
    """The middles of `count` equal parts of what is available; all of it where there is no more than that."""
    count = min(count, available)
    return [(2 * part + 1) * available // (2 * count) for part in range(count)]


@torch.no_grad()
def predict(model: nn.Module, x: Tensor) -> Tensor:
    """The most probable classes: N×H×W of N×3×H×W images in [0, 1], or N where a model classifies; where x is."""
    device = next((parameter.device for parameter in model.parameters()), x.device)
    with population_statistics(model):
        return upsample(model(x.to(device)), pixels_of(x)).argmax(dim=1).to(x.device)


def evaluate(
    model: nn.Module,
    samples: Samples,
    classes: int,
    without: Collection[int] = (),
    ranks: Ranks = ALONE,
    window: tuple[int, int] | None = None,
) -> Scores:
    """The model on whole inputs, or in sliding windows, at their own size, but for those with some numbers.

    Several processes take turns at the batches, and all have the scores.
    """
    device = next(model.parameters()).device

    def classify(inputs: Tensor) -> Tensor:
        x = as_input(inputs.to(device))
        return predict(model, x) if window is None else predict_in_windows(model, x, window)

    return score(classify, samples, classes, without, ranks, device)


def score(
    classify: Callable[[Tensor], Tensor],
    samples: Samples,
    classes: int,
    without: Collection[int] = (),
    ranks: Ranks = ALONE,
    device: torch.device = CPU,
) -> Scores:
    """As `evaluate`, of any function from N×H×W×3 bytes to classes on a device."""
    confusion = torch.zeros(classes, classes, dtype=torch.int64, device=device)
    for inputs, labels in _batches(samples, without, ranks):
        ranks.tick()
        confusion += confusion_matrix(classify(inputs), labels.to(device), classes)
    return Scores(ranks.sum(confusion).cpu(), samples.task)


def as_input(images: Tensor) -> Tensor:
    """N×3×H×W in [0, 1] of N×H×W×3 uint8 images; points stay what they are."""
    return images.permute(0, 3, 1, 2).float() / 255 if images.ndim == 4 else images


def _batches(samples: Samples, without: Collection[int], ranks: Ranks) -> Iterator[tuple[Tensor, Tensor]]:
    """The labelled inputs and their labels, those of one size together, as many as memory should hold at once.

    Batches are the same for any number of processes, which take turns at them.
    """
    turns = count()
    counted = np.setdiff1d(np.arange(samples.labelled), np.fromiter(without, dtype=np.int64))
    sizes, group = np.unique(samples.sizes[counted], axis=0, return_inverse=True)
    for kind, (height, width) in enumerate(sizes.tolist()):
        members = counted[group == kind]
        parts = min(math.ceil(len(members) * height * width / PIXELS_AT_ONCE), len(members))
        for batch in np.array_split(members, parts):
            if next(turns) % ranks.of != ranks.rank:
                continue
            images = np.stack([samples.image(item) for item in batch])
            inputs = images if images.dtype == np.uint8 else images[:, 0, 0]  # points
            labels = np.stack([samples.label_map(item) for item in batch]) if samples.dense else samples.labels[batch]
            yield torch.from_numpy(inputs), torch.from_numpy(labels)


def evaluate_run(
    path: Path,
    split: SplitName,
    data_path: Path | None,
    console: Console,
    factory: str | None = None,
    refresh: bool = False,
    device: str = "auto",
    cache: Path | None = None,
    mirror: bool = False,
    window: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """A run's kept model on a split of its data set, or of the same kind of data set elsewhere.

    With `mirror`, what it makes of an image is averaged with what it makes of the mirror image; with `window`, it sees
    images in windows of that height and width.
    """
    run = runs.open_run(path)
    if window and min(window) < SMALLEST:
        crop = run.config.jitter.crop
        crops = f", such as those of its crops: --window {crop[0]} {crop[1]}" if crop else ""
        raise UserError(
            f"--window {window[0]} {window[1]}: shows {path} next to nothing at a time, and would take hours. Give "
            f"{SMALLEST} pixels or more a side{crops}."
        )
    if split == "test":
        _require_test_split(run.config.data.name)
    trained = runs.load_model(run.model_file, runs.choose_device(device), factory)
    dataset, samples, seen = read_split(run, split, trained.classes, data_path, console, refresh, cache)
    refuse_other_bands(run, trained, dataset)
    if mirror and samples.task != "segmentation":
        raise UserError(f"--mirror: {path} classifies {run.config.data.name}; only segmentation is averaged so.")
    if window and samples.task != "segmentation":
        raise UserError(f"--window: {path} classifies {run.config.data.name}, whole inputs at once; leave it out.")
    network = Mirrored(trained.network) if mirror else trained.network
    scores = evaluate(network, samples, len(trained.classes), without=seen, window=window)
    if not scores.confusion.any():
        where = data_path or run.config.data.path or run.config.data.name
        raise UserError(f"{where}: no pixel of its images to evaluate is labelled, and nothing can be scored.")
    counted = samples.labelled - len(seen)
    left_out = {"left_out": [samples.names[number] for number in seen]} if seen else {}
    how = ({"mirror": True} if mirror else {}) | ({"window": list(window)} if window else {})
    about = {"run": str(path), "split": split, "samples": counted, **how, **left_out}
    return {**about, **as_json(scores, trained.classes)}


class NothingValidates(UserError):
    """A run has no images that it may be judged by."""


class ReadSplit(NamedTuple):
    """A split of a run's data set, or of another one."""

    dataset: Dataset
    samples: Samples
    seen: list[int]
    """Numbers of samples whose labels taught, and which therefore do not count."""


def read_split(
    run: runs.Run,
    split: SplitName,
    classes: tuple[str, ...],
    data_path: Path | None,
    console: Console,
    refresh: bool = False,
    cache: Path | None = None,
) -> ReadSplit:
    """Images that a run may be judged by; the same kind of data set elsewhere where `data_path` names one."""
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


def _require_test_split(name: str) -> None:
    if name in data.READERS:
        raise UserError(f"{name} has no test split apart from its validation set; use --split val.")
    if name == "folder":
        raise UserError(
            "A folder has no test split. Put such images into a folder of their own, and name it with --data."
        )


def refuse_trained_on(run: runs.Run, samples: Samples) -> None:
    """A share of the labelled images is held out where a folder has no validation set, and that share can move."""
    known = set(run.split.labelled)
    if trained_on := [name for name in samples.names[: samples.labelled] if name in known]:
        raise UserError(
            f"{run.path}: was trained on the labels of {listed(trained_on)}, which would validate it now that the "
            "images with labels are others. Train again, or give it images that it has not seen with --data DIR."
        )


def leave_out_trained_on(
    run: runs.Run, samples: Samples, digests: Mapping[str, str], folder: Path, console: Console
) -> list[int]:
    """The numbers of labelled images on whose labels a run was trained, under whatever names; says what it finds.

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
    """A run's data, or those of another folder, in which the classes have to be those of its model.

    In another folder, all that is labelled validates: none of it has taught. One that has all the images whose labels
    taught, by their names, is the run's own that has moved.
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


def as_json(scores: Scores, classes: Sequence[str]) -> dict[str, Any]:
    """Scores by name, as summaries have them; the value is None where nothing was scored."""
    return {
        "metric": scores.metric,
        "value": scores.value if scores.confusion.any() else None,
        "per_class": dict(zip(classes, scores.per_class, strict=True)),
        "absent": [classes[index] for index in scores.absent],
        "confusion": scores.confusion.tolist(),
    }


def about_absent(scores: Mapping[str, Any]) -> str:
    """Which classes no pixel has, and which are predicted all the same; nothing where all are there."""
    if not scores["absent"] or scores["metric"] != "miou":
        return ""
    columns = zip(*scores["confusion"], strict=True)
    predicted = {name: sum(column) for name, column in zip(scores["per_class"], columns, strict=True)}
    note = f"No pixel is labelled {listed(scores['absent'], None, 'or')}: not in the mean."
    if wrong := [name for name in scores["absent"] if predicted[name]]:
        share = 100 * sum(predicted[name] for name in wrong) / sum(predicted.values())
        amount = f"{share:.1f} %" if share >= 0.05 else "Less than 0.1 %"
        note += f" {amount} are taken for {listed(wrong, None, 'or')} all the same: errors of the classes they have."
    return note
