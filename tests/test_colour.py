"""Colour jitter against torchvision's functions, one image at a time."""

from __future__ import annotations

import pytest
import torch
from torchvision.transforms.v2 import functional as vision

from oneway.common.streams import stream
from oneway.draws import Colours, draw_colours
from oneway.ops import jitter_colours


def drawn(count: int) -> Colours:
    return draw_colours(stream(0, "test"), count)


def images(count: int) -> torch.Tensor:
    return torch.rand(count, 3, 18, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_every_step_is_torchvisions(strength):
    """Brightness, contrast, saturation, hue, grey and blur in this order, each image with its own."""
    x, draw = images(64), drawn(64)
    found = jitter_colours(x, draw, strength)
    seen = set()
    for n, image in enumerate(x):
        coloured, grey, blurred = (draw.u[n] < strength * torch.tensor([0.8, 0.2, 0.5])).tolist()
        expected = image
        if coloured:
            expected = vision.adjust_brightness(expected, 1 + strength * draw.brightness[n].item())
            expected = vision.adjust_contrast(expected, 1 + strength * draw.contrast[n].item())
            expected = vision.adjust_saturation(expected, 1 + strength * draw.saturation[n].item())
            expected = vision.adjust_hue(expected, strength * draw.hue[n].item())
        if grey:
            expected = vision.rgb_to_grayscale(expected, num_output_channels=3)
        if blurred:
            expected = vision.gaussian_blur(expected, [11, 11], [draw.blur[n].item()] * 2)
        torch.testing.assert_close(found[n], expected, atol=1e-5, rtol=0, msg=lambda m, n=n: f"image {n}: {m}")
        seen.add((coloured, grey, blurred))
    assert len(seen) >= 6


def test_draws_fill_their_ranges():
    """4,000 images: changes are centred, and reach both ends."""
    draw = drawn(4000)
    for values, end in ((draw.brightness, 0.5), (draw.contrast, 0.5), (draw.saturation, 0.5), (draw.hue, 0.25)):
        assert values.abs().max() <= end
        assert values.max() > 0.98 * end
        assert values.min() < -0.98 * end
        assert abs(values.mean()) < 0.02
    assert draw.blur.min() >= 0.1
    assert draw.blur.max() <= 2.0
    assert not torch.equal(draw.u[:, 0], draw.u[:, 1])


def test_no_strength_changes_nothing():
    """But for rounding."""
    x = images(8)
    torch.testing.assert_close(jitter_colours(x, drawn(8), 0.0), x, atol=1e-12, rtol=0)
