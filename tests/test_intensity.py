"""AugSeg's random intensities against torchvision's functions, one image at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as vision

from oneway.common.streams import stream
from oneway.draws import OPERATIONS as DRAWN
from oneway.draws import Intensities, draw_intensities
from oneway.ops import vary_intensity
from oneway.ops.intensity import OPERATIONS


def factor(u: float) -> float:
    return 0.95 - 0.9 * u


ORACLES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "keep": lambda x, u: x,
    "autocontrast": lambda x, u: vision.autocontrast(x),
    "equalize": lambda x, u: vision.equalize(x),
    "gaussian_blur": lambda x, u: vision.gaussian_blur(x, [11, 11], [0.1 + 1.9 * u] * 2),
    "contrast": lambda x, u: vision.adjust_contrast(x, factor(u)),
    "brightness": lambda x, u: vision.adjust_brightness(x, factor(u)),
    "saturation": lambda x, u: vision.adjust_saturation(x, factor(u)),
    "sharpness": lambda x, u: vision.adjust_sharpness(x, factor(u)),
    "posterize": lambda x, u: vision.posterize(x, 8 - max(1, math.floor(4 * u) + 1)),
    "solarize": lambda x, u: vision.solarize(x, 1 - u),
    "hue": lambda x, u: vision.adjust_hue(x, u - 0.5),
}


def images(count: int) -> Tensor:
    """Not too colourful, and one of them grey all over."""
    x = 0.2 + 0.5 * torch.rand(count, 3, 24, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[0] = 128 / 255
    return x


def test_operations_are_as_many_as_are_drawn():
    assert len(OPERATIONS) == DRAWN == len(ORACLES)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_every_operation_is_torchvisions(operation):
    """Of seven strengths from the weakest to the strongest."""
    x, strengths = images(7), torch.tensor([0.3, 0.0, 0.2, 0.45, 0.6, 0.8, 0.999], dtype=torch.float64)
    found = operation(x, strengths.view(-1, 1, 1, 1))
    for image, u, ours in zip(x, strengths.tolist(), found, strict=True):
        torch.testing.assert_close(ours, ORACLES[operation.__name__](image, u), atol=1e-6, rtol=0)


def test_one_to_three_operations_in_their_order():
    """Sixty images, each with its own."""
    x, draw = images(60), draw_intensities(stream(1, "test"), 60)
    found, names = vary_intensity(x, draw), [operation.__name__ for operation in OPERATIONS]
    counts = set()
    for n, image in enumerate(x):
        count = int(draw.steps[n])
        for place in range(count):
            image = ORACLES[names[draw.operation[n, place]]](image, float(draw.strength[n, place]))
        # Rounded steps may fall to either side of a level that is hit to the last bit.
        assert ((found[n] - image).abs() < 1e-5).double().mean() > 0.99, n
        counts.add(count)
    assert counts == {1, 2, 3}


def test_draws_are_uniform():
    """6,000 images: each number of operations in a third, each operation in an eleventh of the places."""
    draw = draw_intensities(stream(0, "test"), 6000)
    assert torch.bincount(draw.steps, minlength=4).tolist()[0] == 0
    assert (torch.bincount(draw.steps)[1:] / 6000 - 1 / 3).abs().max() < 0.02
    assert (torch.bincount(draw.operation.flatten()) / 18000 - 1 / 11).abs().max() < 0.01
    assert draw.strength.min() >= 0
    assert draw.strength.max() < 1


def test_colours_stay_colours():
    """In [0, 1], and finite, for images of one colour too."""
    x = torch.stack([torch.full((3, 16, 16), value) for value in (0.0, 0.5, 1.0)])
    for number in range(len(OPERATIONS)):
        count, operation = torch.full((3,), 3), torch.full((3, 3), number)
        y = vary_intensity(x, Intensities(count, operation, torch.full((3, 3), 0.7)))
        assert y.isfinite().all()
        assert y.min() >= 0
        assert y.max() <= 1
