"""What is left of a model under perturbation: measured on images and labels that are warped alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oneway.common.terms import IGNORE
from oneway.data import Samples
from oneway.data.streets import CLASSES, render
from oneway.runs import TrainedModel, load_model
from oneway.tools.evaluate import evaluate
from oneway.tools.report.robustness import STRENGTHS, part_with_rare, robustness


class ByRed(nn.Module):
    """Tells two classes apart by the red of each pixel alone, so that a warp cannot mislead it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack((0.5 - x[:, 0], x[:, 0] - 0.5), dim=1)


def blocks(count: int, height: int, width: int) -> Samples:
    """Black images with a red block each, which is the second class."""
    labels = np.zeros((count, height, width), dtype=np.uint8)
    for index, one in enumerate(labels):
        one[height // 4 : 3 * height // 4, index : index + width // 2] = 1
    images = np.zeros((count, height, width, 3), dtype=np.uint8)
    images[..., 0] = 255 * labels
    return Samples.stacked(tuple(map(str, range(count))), images, labels)


def test_curves_begin_with_unchanged_images(folders: list[Path]) -> None:
    """At strength 0 of either component stands what evaluation says about the same images."""
    images, labels = zip(*(render(1, index, 32, 64) for index in range(9)), strict=True)
    samples = Samples.stacked(tuple("abcdefghi"), np.stack(images), np.stack(labels))
    models = [load_model(folder / "model.safetensors", torch.device("cpu")) for folder in folders]
    expected = [evaluate(model.network, samples, len(CLASSES)).value for model in models]
    found = robustness(samples, models, (32, 64))
    assert found.images == 9
    for of_runs in (found.photometric, found.geometric):
        assert [of_run[0] for of_run in of_runs] == pytest.approx(expected)


def test_labels_are_warped_with_the_image() -> None:
    """A model that looks at red alone stays right under every warp, except at edges, and not when colours change."""
    model = TrainedModel(ByRed(), ("black", "red"), ((0, 0, 0), (255, 0, 0)))
    found = robustness(blocks(12, 64, 128), [model], (64, 128))
    (photometric,), (geometric,) = found.photometric, found.geometric
    assert len(photometric) == len(geometric) == len(STRENGTHS)
    assert photometric[0] == geometric[0] == 100
    assert min(geometric) > 95
    assert photometric[-1] < 80


def test_large_images_are_judged_by_a_part() -> None:
    """As large as a training crop, so that their number is bounded and warps are as strong as in training."""
    model = TrainedModel(ByRed(), ("black", "red"), ((0, 0, 0), (255, 0, 0)))
    found = robustness(blocks(12, 256, 384), [model], (128, 200))
    assert found.cropped_to == (128, 200)
    assert found.images == 10
    assert robustness(blocks(12, 32, 64), [model], (64, 128)).cropped_to is None


def test_the_part_of_an_image_is_around_what_is_rare() -> None:
    """A defect in the corner of one image of twenty is measured, and not only the ground in the middle of some."""
    labels = np.zeros((20, 256, 384), dtype=np.uint8)
    labels[7, 4:9, 370:380] = 1
    images = np.zeros((*labels.shape, 3), dtype=np.uint8)
    images[..., 0] = 255 * labels
    blind = torch.nn.Conv2d(3, 2, 1)
    torch.nn.init.zeros_(blind.weight)
    blind.bias.data = torch.tensor([1.0, 0.0])
    model = TrainedModel(blind, ("ground", "defect"), ((0, 0, 0), (255, 0, 0)))
    found = robustness(Samples.stacked(tuple(map(str, range(20))), images, labels), [model], (128, 200))
    assert found.images < 20
    assert found.photometric[0][0] == pytest.approx(50, abs=0.1)  # all of the ground, nothing of the defect


def test_a_part_stays_within_its_image() -> None:
    """Around the middle pixel of the class that is rarest over all images; in the middle where nothing is labelled."""
    y = torch.full((100, 80), IGNORE)
    frequency = torch.tensor([5000, 900, 30])
    assert part_with_rare(y, frequency, (20, 200)) == (slice(40, 60), slice(0, 80))
    y[:] = 0
    y[98:, :3] = 1
    assert part_with_rare(y, frequency, (20, 30)) == (slice(80, 100), slice(0, 30))
    y[50, 40] = 2
    assert part_with_rare(y, frequency, (20, 30)) == (slice(40, 60), slice(25, 55))
