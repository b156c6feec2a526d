"""How good a model is: confusion matrix, IoU per class and their mean, accuracy.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from oneway.common.terms import IGNORE, Task
from oneway.data.dataset import Samples
from oneway.engine.ranks import ALONE, Ranks
from oneway.models.norm import population_statistics
from oneway.ops.losses import pixels_of, upsample
from oneway.ops.most_probable import is_exact, most_probable
from oneway.tools.intervals import Counts, Interval, interval_of, together
from oneway.tools.windows import predict_in_windows

Indices = npt.NDArray[np.int64]

PIXELS_AT_ONCE = 2**20
"""Bounds the memory that a batch of predictions takes."""
CPU = torch.device("cpu")
METRIC_NAMES = {"miou": "mIoU", "accuracy": "accuracy"}
METRIC_OF_TASK: dict[Task, Literal["miou", "accuracy"]] = {"segmentation": "miou", "classification": "accuracy"}


@dataclass(frozen=True)
class Scores:
    """What a confusion matrix (C×C, rows are true classes, columns predictions) says about a task."""

    confusion: Tensor
    task: Task = "segmentation"
    by_image: Counts | None = None
    """Of the same pixels, for segmentation; unless somebody has the matrix alone."""

    groups: tuple[str, ...] = ()
    """Of each image among these, where it is known which belong together."""

    @property
    def metric(self) -> Literal["miou", "accuracy"]:
        """What `value` is."""
        return METRIC_OF_TASK[self.task]

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

        Predictions of an absent class already lower the IoU of the classes that those pixels have; a zero for it would
        weigh a single such pixel as much as a whole class.
        """
        matrix = self.confusion.double()
        hits, occurring = matrix.diagonal(), matrix.sum(dim=1)
        out_of = occurring + matrix.sum(dim=0) - hits if self.task == "segmentation" else occurring
        rows = zip(hits, out_of, occurring > 0, strict=True)
        return [100 * float(hit / total) if occurs else None for hit, total, occurs in rows]

    @property
    def interval(self) -> Interval | None:
        """Where `value` would lie with other images; None where too few are scored to tell."""
        return None if self.by_image is None else interval_of(together(self.by_image, self.groups))

    @property
    def recall(self) -> list[float | None]:
        """Percent of the pixels of a class that are found. None where a class does not occur."""
        return self._share_of(self.confusion.sum(dim=1))

    @property
    def precision(self) -> list[float | None]:
        """Percent of the pixels taken for a class that are of it. None where nothing is taken for it."""
        return self._share_of(self.confusion.sum(dim=0))

    @property
    def dice(self) -> list[float | None]:
        """Percent, of masks: Dice's coefficient, or F1, which is twice the hits over labelled and predicted pixels."""
        return [value and 200 * value / (100 + value) for value in self.per_class]

    def _share_of(self, totals: Tensor) -> list[float | None]:
        """The share of hits, class by class."""
        pairs = zip(self.confusion.diagonal().tolist(), totals.tolist(), strict=True)
        return [100 * hits / total if total else None for hits, total in pairs]

    @property
    def absent(self) -> list[int]:
        """Classes that do not occur."""
        return torch.nonzero(self.confusion.sum(dim=1) == 0).flatten().tolist()


class Tally:
    """The confusion of samples, batch by batch; it stays on the device, so that nobody waits for a GPU."""

    def __init__(self, samples: Samples, classes: int, skip: Collection[int] = (), device: torch.device = CPU) -> None:
        self.samples, self.classes = samples, classes
        self.counted = _without(samples, skip)
        self.confusion = torch.zeros(classes, classes, dtype=torch.int64, device=device)
        self.by_image = torch.zeros(len(samples), 3, classes, dtype=torch.int64, device=device)

    def add(self, items: Indices, predictions: Tensor, labels: Tensor) -> None:
        """Count a batch: which samples it has, and their classes as predicted and as labelled."""
        matrices = confusion_matrices(predictions, labels, self.classes)
        self.confusion += matrices.sum(dim=0)
        counts = matrices.diagonal(dim1=1, dim2=2), matrices.sum(dim=2), matrices.sum(dim=1)
        self.by_image[torch.from_numpy(items).to(self.by_image.device)] = torch.stack(counts, dim=1)

    def scores(self, ranks: Ranks = ALONE) -> Scores:
        """What has been counted, by all processes together."""
        confusion, by_image = (ranks.sum(counts).cpu() for counts in (self.confusion, self.by_image))
        kept = by_image.numpy()[self.counted] if self.samples.task == "segmentation" else None
        groups = tuple(self.samples.groups[number] for number in self.counted) if self.samples.groups else ()
        return Scores(confusion, self.samples.task, kept, groups)


def confusion_matrices(predictions: Tensor, labels: Tensor, classes: int) -> Tensor:
    """N×C×C counts, for each sample, over the labels (N×H×W or N) that are not ignored.

    No tensor has a size that depends on what is counted: ignored labels have a cell of their own.
    """
    cells = torch.where(labels == IGNORE, classes**2, labels.long() * classes + predictions.long())
    cells = cells.reshape(len(labels), -1)
    counts = torch.zeros(len(labels), classes**2 + 1, dtype=torch.int64, device=labels.device)
    counts.scatter_add_(1, cells, torch.ones_like(cells))
    return counts[:, :-1].view(-1, classes, classes)


def evenly_spaced(available: int, count: int) -> list[int]:
    """The middles of `count` equal parts of what is available; all of it where there is no more than that."""
    count = min(count, available)
    return [(2 * part + 1) * available // (2 * count) for part in range(count)]


@torch.no_grad()
def predict(model: nn.Module, x: Tensor) -> Tensor:
    """The most probable classes: N×H×W of N×3×H×W images in [0, 1], or N where a model classifies; where x is.

    On a CPU, logits at full size exist for a few rows at a time: those of a large photograph take gigabytes.
    """
    device = next((parameter.device for parameter in model.parameters()), x.device)
    with population_statistics(model):
        logits, pixels = model(x.to(device)), pixels_of(x)
        if logits.ndim == 4 and logits.device.type == "cpu" and is_exact(logits, pixels):
            return most_probable(logits, pixels, confidence=False)[0].long().to(x.device)
        return upsample(logits, pixels).argmax(dim=1).to(x.device)


def evaluate(
    model: nn.Module,
    samples: Samples,
    classes: int,
    skip: Collection[int] = (),
    ranks: Ranks = ALONE,
    window: tuple[int, int] | None = None,
) -> Scores:
    """The scores of a model on samples at their own size, whole or in sliding windows; `skip` has indices to leave out.

    Several processes take turns at the batches, and all get the scores.
    """
    device = next(model.parameters()).device

    def classify(inputs: Tensor) -> Tensor:
        x = as_input(inputs.to(device))
        return predict(model, x) if window is None else predict_in_windows(model, x, window)

    return score(classify, samples, classes, skip, ranks, device)


def score(
    classify: Callable[[Tensor], Tensor],
    samples: Samples,
    classes: int,
    skip: Collection[int] = (),
    ranks: Ranks = ALONE,
    device: torch.device = CPU,
) -> Scores:
    """As `evaluate`, for any function from N×H×W×3 bytes to the classes, on `device`."""
    tally = Tally(samples, classes, skip, device)
    for items, inputs, labels in batches_of(samples, skip, ranks):
        ranks.tick()
        tally.add(items, classify(inputs), labels.to(device))
    return tally.scores(ranks)


def as_input(images: Tensor) -> Tensor:
    """N×3×H×W in [0, 1] of N×H×W×3 uint8 images; points stay what they are."""
    return images.permute(0, 3, 1, 2).float() / 255 if images.ndim == 4 else images


def batches_of(
    samples: Samples, skip: Collection[int] = (), ranks: Ranks = ALONE
) -> Iterator[tuple[Indices, Tensor, Tensor]]:
    """Indices, inputs and labels of labelled samples of one size, with at most PIXELS_AT_ONCE pixels in a batch.

    Batches do not depend on the number of processes, which take turns at them. Those of one size differ by a sample.
    """
    turns = count()
    counted = _without(samples, skip)
    sizes, group = np.unique(samples.sizes[counted], axis=0, return_inverse=True)
    for kind, (height, width) in enumerate(sizes.tolist()):
        members = counted[group == kind]
        parts = min(math.ceil(len(members) * height * width / PIXELS_AT_ONCE), len(members))
        for batch in np.array_split(members, parts):
            if next(turns) % ranks.world_size != ranks.rank:
                continue
            images = np.stack([samples.image(item) for item in batch])
            inputs = images if images.dtype == np.uint8 else images[:, 0, 0]  # points
            labels = np.stack([samples.label_map(item) for item in batch]) if samples.dense else samples.labels[batch]
            yield batch, torch.from_numpy(inputs), torch.from_numpy(labels)


def _without(samples: Samples, skip: Collection[int]) -> Indices:
    return np.setdiff1d(np.arange(samples.labelled), np.fromiter(skip, dtype=np.int64))


def as_json(scores: Scores, classes: Sequence[str]) -> dict[str, Any]:
    """Scores by name, as summaries have them; the value is None where nothing was scored."""
    return {
        "metric": scores.metric,
        "value": scores.value if scores.confusion.any() else None,
        "interval": scores.interval,
        "per_class": dict(zip(classes, scores.per_class, strict=True)),
        "absent": [classes[index] for index in scores.absent],
        "confusion": scores.confusion.tolist(),
    }


def by_image_as_json(counts: Counts, names: Sequence[str], groups: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What `validation.jsonl` keeps of each image."""
    for number, (name, rows) in enumerate(zip(names, counts.tolist(), strict=True)):
        group = {"group": groups[number]} if groups else {}
        yield {"image": name, **group, **dict(zip(("hits", "labelled", "predicted"), rows, strict=True))}
