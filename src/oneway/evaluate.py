"""How good a model is: confusion matrix, IoU per class and their mean, accuracy.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from oneway import data
from oneway import run as runs
from oneway.data.dataset import IGNORE, Task
from oneway.data.store import Store
from oneway.losses import upsample
from oneway.methods import SplitName
from oneway.models.norm import population_statistics

EVALUATION_BATCH: dict[Task, int] = {"segmentation": 16, "classification": 1000}
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
        """Percent: mean IoU over the classes that have one, or the share of correct predictions."""
        if self.task == "classification":
            return 100 * int(self.confusion.diagonal().sum()) / int(self.confusion.sum())
        present = [value for value in self.per_class if value is not None]
        return sum(present) / max(1, len(present))

    @property
    def per_class(self) -> list[float | None]:
        """Percent: IoU, or the share of a class that is recognised. None where a class gives nothing to measure."""
        matrix = self.confusion.double()
        hits, out_of = matrix.diagonal(), matrix.sum(dim=1)
        if self.task == "segmentation":
            out_of = out_of + matrix.sum(dim=0) - hits
        return [100 * float(h / n) if n > 0 else None for h, n in zip(hits, out_of, strict=True)]

    @property
    def absent(self) -> list[int]:
        """Classes that do not occur: an IoU of theirs says only that they were predicted wrongly."""
        return torch.nonzero(self.confusion.sum(dim=1) == 0).flatten().tolist()


def confusion_matrix(predictions: Tensor, labels: Tensor, classes: int) -> Tensor:
    """C×C counts over the labels (N×H×W or N) that are not ignored."""
    counted = labels != IGNORE
    cells = labels[counted].long() * classes + predictions[counted].long()
    return torch.bincount(cells, minlength=classes**2).view(classes, classes)


@torch.no_grad()
def predict(model: nn.Module, x: Tensor) -> Tensor:
    """The most probable classes: N×H×W of N×3×H×W images in [0, 1], or N where a model classifies."""
    with population_statistics(model):
        return upsample(model(x), x).argmax(dim=1)


def evaluate(model: nn.Module, store: Store, classes: int, task: Task) -> Scores:
    """The model on whole inputs, at their own size."""
    batch = EVALUATION_BATCH[task]
    confusion = torch.zeros(classes, classes, dtype=torch.int64, device=store.inputs.device)
    for inputs, labels in zip(store.inputs.split(batch), store.labels.split(batch), strict=True):
        x = inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs
        confusion += confusion_matrix(predict(model, x), labels, classes)
    return Scores(confusion.cpu(), task)


def evaluate_run(path: Path, split: SplitName, data_path: Path | None) -> dict[str, Any]:
    """A run's kept model on a split of its data set, or of the same kind of data set elsewhere."""
    run = runs.open_run(path)
    device = runs.choose_device("auto")
    trained = runs.load_model(path / "model.safetensors", device)
    dataset = data.load(run.config.data.model_copy(update={"path": data_path or run.config.data.path}))
    samples = dataset.read(split)
    scores = evaluate(trained.network, Store.hold(samples, device), len(trained.classes), dataset.task)
    return {"run": str(path), "split": split, "samples": len(samples), **as_json(scores, trained.classes)}


def as_json(scores: Scores, classes: Sequence[str]) -> dict[str, Any]:
    """Scores by name, as summaries have them."""
    return {
        "metric": scores.metric,
        "value": scores.value,
        "per_class": dict(zip(classes, scores.per_class, strict=True)),
        "absent": [classes[index] for index in scores.absent],
        "confusion": scores.confusion.tolist(),
    }
