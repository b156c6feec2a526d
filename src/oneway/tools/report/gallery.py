"""The qualitative figure: validation images, clean and perturbed, and what each model makes of them.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from oneway.common.terms import IGNORE
from oneway.config import Perturb
from oneway.data import Samples
from oneway.data.dataset import Bytes
from oneway.data.pictures import Mask, as_pixels, draw_classes, hatched, resize_labels, shown_size
from oneway.draws import PerturbationDraw, draw_perturbation, on_device
from oneway.perturb import perturb_labels, phtps
from oneway.runs import TrainedModel
from oneway.tools.evaluate import CPU, Scores, as_input, confusion_matrices, predict
from oneway.tools.scenes import choose_scenes

SCENES = 4
SEED = 0
"""The seed of the perturbations: every report shows the same ones, whatever the seed of its runs."""


@dataclass(frozen=True)
class Attempt:
    """A model's prediction, and how good it is on this one picture."""

    picture: Image.Image
    miou: float


@dataclass(frozen=True)
class GalleryRow:
    """One image, clean or perturbed."""

    name: str
    perturbed: bool
    image: Image.Image
    truth: Image.Image
    attempts: list[Attempt]  # one per model

    @property
    def pictures(self) -> list[Image.Image]:
        """All that it shows."""
        return [self.image, self.truth, *(attempt.picture for attempt in self.attempts)]


def gallery(images: Samples, models: Sequence[TrainedModel], config: Perturb) -> list[GalleryRow]:
    """Clean and perturbed rows in turn, of a few images (see `choose_scenes`)."""
    rows = []
    for number, index in enumerate(choose_scenes(images, SCENES)):
        x, y, draw = example(images, index, number, device_of(models))
        perturbation = phtps(draw, x, config)
        rows.append(_row(images.names[index], x, y, None, models))
        warped = perturb_labels(y, perturbation)
        rows.append(_row(images.names[index], perturbation.image(x), warped, perturbation.valid, models))
    return rows


def device_of(models: Sequence[TrainedModel]) -> torch.device:
    """Where models are, and perturbations are quick: warping an image takes a CPU longer than a GPU its prediction."""
    return next((parameter.device for model in models for parameter in model.network.parameters()), CPU)


def example(images: Samples, index: int, number: int, device: torch.device) -> tuple[Tensor, Tensor, PerturbationDraw]:
    """One image (N = 1) with its labels, and draw number `number` of a perturbation, on a device."""
    x = as_input(torch.from_numpy(images.image(index))[None].to(device))
    y = torch.from_numpy(images.label_map(index))[None].to(device)
    return x, y, on_device(draw_perturbation(SEED, number, count=1), device)


def _row(name: str, x: Tensor, y: Tensor, valid: Tensor | None, models: Sequence[TrainedModel]) -> GalleryRow:
    """One image (N = 1). What is predicted outside the image is nobody's mistake and is not shown."""
    inside = torch.ones_like(y, dtype=torch.bool) if valid is None else valid
    colours = models[0].colours
    attempts = []
    for model in models:
        prediction = predict(model.network, x)
        shown = torch.where(inside, prediction, IGNORE).to(torch.uint8)[0].cpu().numpy()
        miou = Scores(confusion_matrices(prediction, y, len(colours))[0].cpu()).value
        attempts.append(Attempt(draw_classes(shown, colours), miou))
    return GalleryRow(
        name=name,
        perturbed=valid is not None,
        image=photo(as_pixels(x), inside[0].cpu().numpy()),
        truth=draw_classes(y[0].cpu().numpy(), colours),
        attempts=attempts,
    )


def photo(pixels: Bytes, valid: Mask) -> Image.Image:
    """An H×W×3 image at the size shown, hatched where not `valid` (H×W)."""
    size = shown_size(*valid.shape)
    picture = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))
    outside = resize_labels(valid.astype(np.uint8), size) == 0
    return Image.fromarray(hatched(picture, outside))
