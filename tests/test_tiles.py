"""Facts about images that are seen in overlapping tiles."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oneway.common.errors import UserError
from oneway.data.streets import render
from oneway.tools.predict import load
from oneway.tools.predict.tiles import slide, starts


def test_tiles_reach_from_border_to_border_and_overlap():
    """Every length from one tile to ten: first at 0, last at the end, a quarter shared between neighbours."""
    assert starts(20, 32) == [0]
    assert starts(32, 32) == [0]
    assert starts(56, 32) == [0, 24]
    for length in range(33, 320):
        places = starts(length, 32)
        assert (places[0], places[-1]) == (0, length - 32)
        assert all(0 < step <= 24 for step in np.diff(places))


def test_tiles_average_probabilities():
    """Against all tiles added up in one array of the whole image, where a pixel's prediction depends on its tile."""
    image, tile = torch.randint(256, (75, 90, 3), generator=torch.Generator().manual_seed(0)), (32, 48)

    def probabilities(tiles: torch.Tensor) -> torch.Tensor:
        values = tiles.permute(0, 3, 1, 2).float() / 40
        return (values - values.mean(dim=(2, 3), keepdim=True) * 3).softmax(dim=1)

    sums, count = np.zeros((3, 75, 90)), np.zeros((75, 90))
    for top in starts(75, 32):
        for left in starts(90, 48):
            place = np.s_[top : top + 32, left : left + 48]
            sums[:, *place] += probabilities(image[place][None])[0].numpy()
            count[place] += 1
    labels, confidence = slide(probabilities, image, tile, batch=2)
    assert np.array_equal(labels.numpy(), sums.argmax(axis=0))
    np.testing.assert_allclose(confidence.numpy(), (sums / count).max(axis=0), rtol=1e-5)


def test_tiles_larger_than_the_image_see_it_whole(trained_run):
    """The prediction is that of the whole; tiles too small to be meant are refused."""
    model, (scene, _) = load(trained_run, "cpu"), render(0, 0, 64, 128)
    whole, tiled = model.predict(scene), model.predict(scene, tile=(500, 500))
    assert np.array_equal(whole.labels, tiled.labels)
    np.testing.assert_allclose(whole.confidence, tiled.confidence, atol=1e-5)
    assert model.predict(scene, tile=(32, 48)).labels.shape == (64, 128)
    with pytest.raises(UserError, match="32 pixels or more"):
        model.predict(scene, tile=(8, 8))
