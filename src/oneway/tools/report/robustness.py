"""What is left of a model's mIoU as perturbations grow: photometric ones, and geometric ones.

Shapes: images of H×W pixels, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oneway.config import Perturb
from oneway.data import Samples
from oneway.draws import PerturbationDraw
from oneway.perturb import UNCHANGED, Perturbation, perturb_labels, ph, tps
from oneway.runs import TrainedModel
from oneway.tools.evaluate import Scores, confusion_matrices, evenly_spaced, predict
from oneway.tools.report.gallery import device_of, example

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
    """Height and width of their middles, where images are larger."""


def robustness(images: Samples, models: Sequence[TrainedModel], crop: tuple[int, int]) -> Robustness:
    """Measure on images evenly spaced over all, and of large ones on the middle, as large as a training crop.

    Displacements are fractions of the height, so warps are then as strong as they were in training. Every model meets
    the same draws; between strengths, a draw differs by nothing else.
    """
    chosen = evenly_spaced(images.labelled, min(MOST, max(FEWEST, PIXELS // math.prod(crop))))
    classes, device = len(models[0].classes), device_of(models)
    confusion = torch.zeros(len(models), 2 * len(STRENGTHS) - 1, classes, classes, dtype=torch.int64, device=device)
    for number, index in enumerate(chosen):
        x, y, draw = example(images, index, number, device)
        x, y = _middle(x, crop), _middle(y, crop)
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


def _middle(values: Tensor, size: tuple[int, int]) -> Tensor:
    """The middle of …×H×W values, where they are larger than `size`."""
    for axis, most in zip((-2, -1), size, strict=True):
        spare = max(0, values.shape[axis] - most)
        values = values.narrow(axis, spare // 2, values.shape[axis] - spare)
    return values
