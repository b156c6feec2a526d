"""What is left of a model's mIoU as perturbations grow: photometric ones, and geometric ones.

Shapes: images of H×W pixels, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from oneway.common.terms import IGNORE
from oneway.config import Perturb
from oneway.data import Samples
from oneway.draws import PerturbationDraw
from oneway.perturb import UNCHANGED, Perturbation, perturb_labels, ph, tps
from oneway.runs import TrainedModel
from oneway.tools.evaluate import Scores, confusion_matrices, predict
from oneway.tools.report.gallery import device_of, example
from oneway.tools.scenes import choose_scenes, pixels_of_classes

STRENGTHS = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Values of one strength, s_P or s_G, while the other is 0. The paper trains at 1."""

PIXELS = 2**18
"""Pixels to predict at each strength: as many as 32 images of `streets` have."""

FEWEST, MOST = 8, 32  # images, whatever their size


@dataclass(frozen=True)
class Robustness:
    """mIoU of each run in percent, at STRENGTHS; and what it was measured on."""

    photometric: list[list[float]]
    geometric: list[list[float]]
    images: int
    cropped_to: tuple[int, int] | None
    """Height and width of the parts that were measured, where images are larger."""


def robustness(images: Samples, models: Sequence[TrainedModel], crop: tuple[int, int]) -> Robustness:
    """Measure on a few images, and of large ones on a part as large as a training crop, where it shows what is rare.

    Displacements are fractions of the height, so warps are then as strong as they were in training. Every model meets
    the same draws; between strengths, a draw differs by nothing else.
    """
    chosen = choose_scenes(images, min(MOST, max(FEWEST, PIXELS // math.prod(crop))))
    frequency = torch.from_numpy(np.sum([pixels_of_classes(images, index) for index in chosen], axis=0))
    classes, device = len(models[0].classes), device_of(models)
    confusion = torch.zeros(len(models), 2 * len(STRENGTHS) - 1, classes, classes, dtype=torch.int64, device=device)
    for number, index in enumerate(chosen):
        x, y, draw = example(images, index, number, device)
        rows, columns = part_with_rare(y[0].cpu(), frequency, crop)
        x, y = x[..., rows, columns], y[..., rows, columns]
        perturbations = _each(draw, x)
        inputs = torch.cat([perturbation.image(x) for perturbation in perturbations])
        labels = torch.cat([perturb_labels(y, perturbation) for perturbation in perturbations])
        for model, of_model in zip(models, confusion, strict=True):
            of_model += confusion_matrices(predict(model.network, inputs), labels, classes)
    values = [[Scores(matrix).value for matrix in of_model] for of_model in confusion.cpu()]
    return Robustness(
        photometric=[of_model[: len(STRENGTHS)] for of_model in values],
        geometric=[[of_model[0], *of_model[len(STRENGTHS) :]] for of_model in values],
        images=len(chosen),
        cropped_to=crop if (images.sizes[chosen] > crop).any() else None,
    )


def _each(draw: PerturbationDraw, x: Tensor) -> list[Perturbation]:
    """One draw as perturbations of the image x: none, then each photometric strength, then each geometric one."""
    return [
        UNCHANGED,
        *(ph(draw, x, Perturb(photometric=strength)) for strength in STRENGTHS[1:]),
        *(tps(draw, x, Perturb(geometric=strength)) for strength in STRENGTHS[1:]),
    ]


def part_with_rare(y: Tensor, frequency: Tensor, size: tuple[int, int]) -> tuple[slice, slice]:
    """The rows and columns of a part of H×W labels, of this size at most, around the rarest class that they show.

    Its middle is the middle one of the pixels of that class, unless the part would then leave the image.
    """
    classes = y.unique()
    classes = classes[classes != IGNORE].long()
    places = (y == classes[frequency[classes].argmin()]).nonzero() if len(classes) else torch.tensor(y.shape)[None] // 2
    middle = places[len(places) // 2].tolist()
    parts = []
    for length, most, centre in zip(y.shape, size, middle, strict=True):
        extent = min(length, most)
        start = min(max(centre - extent // 2, 0), length - extent)
        parts.append(slice(start, start + extent))
    return parts[0], parts[1]
