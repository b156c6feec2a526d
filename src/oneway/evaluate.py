"""How good a model is: confusion matrix, IoU per class, mean IoU.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from oneway import data
from oneway import run as runs
from oneway.data.dataset import IGNORE
from oneway.data.store import Store
from oneway.losses import upsample
from oneway.methods import SplitName
from oneway.models.norm import population_statistics


@dataclass(frozen=True)
class Scores:
    """What a confusion matrix (C×C, rows are true classes, columns predictions) says."""

    confusion: Tensor

    @property
    def iou(self) -> list[float | None]:
        """Percent per class; None for a class that neither occurs nor is predicted."""
        matrix = self.confusion.double()
        hits = matrix.diagonal()
        union = matrix.sum(dim=0) + matrix.sum(dim=1) - hits
        return [100 * float(h / u) if u > 0 else None for h, u in zip(hits, union, strict=True)]

    @property
    def miou(self) -> float:
        """Mean percent over the classes that have an IoU."""
        present = [value for value in self.iou if value is not None]
        return sum(present) / max(1, len(present))

    @property
    def absent(self) -> list[int]:
        """Classes without a single true pixel: an IoU of theirs says only that they were predicted wrongly."""
        return torch.nonzero(self.confusion.sum(dim=1) == 0).flatten().tolist()


def confusion_matrix(predictions: Tensor, labels: Tensor, classes: int) -> Tensor:
    """C×C counts over the pixels of N×H×W labels that are not ignored."""
    counted = labels != IGNORE
    cells = labels[counted].long() * classes + predictions[counted].long()
    return torch.bincount(cells, minlength=classes**2).view(classes, classes)


@torch.no_grad()
def predict(model: nn.Module, x: Tensor) -> Tensor:
    """N×H×W most probable classes of N×3×H×W images in [0, 1]."""
    with population_statistics(model):
        return upsample(model(x), (x.shape[-2], x.shape[-1])).argmax(dim=1)


def evaluate(model: nn.Module, store: Store, classes: int, batch: int = 16) -> Scores:
    """The model on whole images, at their own size."""
    confusion = torch.zeros(classes, classes, dtype=torch.int64, device=store.images.device)
    for images, labels in zip(store.images.split(batch), store.labels.split(batch), strict=True):
        confusion += confusion_matrix(predict(model, images.float() / 255), labels, classes)
    return Scores(confusion.cpu())


def evaluate_run(path: Path, split: SplitName, data_path: Path | None) -> dict[str, Any]:
    """A run's kept model on a split of its data set, or of the same kind of data set elsewhere."""
    run = runs.open_run(path)
    device = runs.choose_device("auto")
    trained = runs.load_model(path / "model.safetensors", device)
    dataset = data.load(run.config.data.model_copy(update={"path": data_path or run.config.data.path}))
    images = dataset.read(split)
    scores = evaluate(trained.network, Store.hold(images, device), len(trained.classes))
    return {
        "run": str(path),
        "split": split,
        "images": len(images),
        "metric": "miou",
        "value": scores.miou,
        "per_class": dict(zip(trained.classes, scores.iou, strict=True)),
        "absent": [trained.classes[index] for index in scores.absent],
    }
