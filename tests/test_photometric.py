"""Facts about the photometric component."""

from __future__ import annotations

import colorsys

import numpy as np
import torch

from oneway.common.streams import stream
from oneway.config import Perturb
from oneway.draws import Photometric, draw_perturbation, draw_photometric
from oneway.ops.photometric import photometric, with_strength
from oneway.perturb import phtps


def by_colorsys(pixel: np.ndarray, b: float, s: float, h: float, c: float, order: list[int]) -> list[float]:
    """The paper's five steps for one pixel, with the standard library's HSV."""
    hue, saturation, value = colorsys.rgb_to_hsv(*(pixel + b))
    shifted = colorsys.hsv_to_rgb((hue + h) % 1.0, saturation * s, value)
    return [c * shifted[channel] for channel in order]


def test_equals_colorsys_pixel_by_pixel():
    """Each image has the colours that HSV arithmetic gives with its own parameters (channels positive after b)."""
    random = np.random.default_rng(0)
    images = random.uniform(0.3, 1, (6, 3, 5, 7))
    draw = draw_photometric(random, 6)
    result = photometric(torch.from_numpy(images), draw).numpy()
    for n, image in enumerate(images):
        parameters = [float(column[n]) for column in draw[:4]]
        order = draw.permutation[n].tolist()
        for i, j in np.ndindex(5, 7):
            expected = by_colorsys(image[:, i, j], *parameters, order)
            np.testing.assert_allclose(result[n, :, i, j], expected, atol=1e-5)


def test_grey_stays_grey():
    """A pixel without chroma has no hue: only brightness and contrast reach it, and nothing becomes NaN."""
    draw = draw_photometric(np.random.default_rng(1), 4)
    grey = torch.rand(4, 1, 3, 3).expand(4, 3, 3, 3)
    expected = (grey + draw.brightness.view(-1, 1, 1, 1)) * draw.contrast.view(-1, 1, 1, 1)
    torch.testing.assert_close(photometric(grey, draw), expected)


def test_saturation_of_negative_channels_follows_the_closed_form():
    """V − s (v − x) stays defined where brightness pushed channels below zero."""
    x = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64).view(1, 3, 1, 1)
    one = torch.ones(1)
    draw = Photometric(-0.25 * one, 2 * one, 0 * one, one, torch.tensor([[0, 1, 2]]), one)
    shifted = x - 0.25
    expected = shifted.amax() - 2 * (shifted.amax() - shifted)
    torch.testing.assert_close(photometric(x, draw), expected)


def test_strength_zero_is_the_identity():
    """s_P = 0 leaves every image as it is, whatever was drawn; with s_G = 0 the whole of PhTPS does, to the bit."""
    x = torch.rand(8, 3, 6, 6, dtype=torch.float64)
    draw = draw_photometric(np.random.default_rng(2), 8)
    torch.testing.assert_close(photometric(x, with_strength(draw, 0)), x, atol=1e-12, rtol=0)
    whole = phtps(draw_perturbation(0, 0, 8), x, Perturb(photometric=0, geometric=0))
    assert torch.equal(whole.image(x), x)


def test_strength_scales_as_the_paper_says():
    """(s_P·b, s^s_P, s_P·h, c^s_P), and a random permutation with probability min(s_P, 1)."""
    draw = draw_photometric(stream(0, "test"), 4000)
    half = with_strength(draw, 0.5)
    torch.testing.assert_close(half.brightness, 0.5 * draw.brightness)
    torch.testing.assert_close(half.saturation, torch.exp(0.5 * draw.saturation.log()))
    torch.testing.assert_close(half.hue, 0.5 * draw.hue)
    torch.testing.assert_close(half.contrast, torch.exp(0.5 * draw.contrast.log()))
    kept = torch.arange(3)
    # One in six random permutations is the identity.
    for strength, share in ((0.5, 0.5 * 5 / 6), (1, 5 / 6), (2, 5 / 6)):
        permuted = (with_strength(draw, strength).permutation != kept).any(dim=1).double().mean()
        assert abs(permuted - share) < 0.03


def test_draws_have_the_papers_distributions():
    """Ranges of b, s, h and c, and all six permutations equally often."""
    draw = draw_photometric(stream(0, "test"), 6000)
    for column, low, high in (
        (draw.brightness, -0.25, 0.25),
        (draw.saturation, 0.25, 2),
        (draw.hue, -0.1, 0.1),
        (draw.contrast, 0.25, 2),
    ):
        assert low <= column.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < column.max() <= high
        assert abs(column.mean() - (low + high) / 2) < 0.02 * (high - low)
    _, counts = draw.permutation.unique(dim=0, return_counts=True)
    assert len(counts) == 6
    assert counts.min() > 850
