"""Facts about images that are seen in overlapping tiles: they are predicted as whole images are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from oneway.common.errors import UserError
from oneway.config import Model
from oneway.data.streets import render
from oneway.models import build
from oneway.models.mirrored import Mirrored
from oneway.tools.predict import Predictor, load, predictor
from oneway.tools.predict.tiles import shares, slide, spans, survey


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=(height, width, 3), dtype=np.uint8)


class Local(nn.Module):
    """Logits of three classes, each from the 15×15 pixels around, at a stride."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        blurred = F.avg_pool2d(x, 15, stride=1, padding=7, count_include_pad=False)
        height, width = (-(-length // self.stride) for length in x.shape[2:])
        return 50 * blurred[:, :, :: self.stride, :: self.stride][:, :, :height, :width]


@pytest.mark.parametrize(("tile", "least"), [(64, 32), (100, 32), (128, 32), (256, 64), (1024, 256)])
def test_tiles_reach_from_border_to_border_and_overlap(tile, least):
    """They begin at multiples of 32 and share a quarter or more; shares add up to 1, and are 0 at inner borders."""
    assert spans(20, tile) == [(0, 20)]
    for length in range(tile, 4 * tile, 37):
        parts = spans(length, tile)
        assert (parts[0][0], parts[-1][1]) == (0, length)
        assert all(start % 32 == 0 and stop - start <= -(-tile // 32) * 32 for start, stop in parts)
        assert all(before[1] - after[0] >= least for before, after in pairwise(parts))
        total = np.zeros(length)
        for (start, stop), share in zip(parts, shares(parts), strict=True):
            total[start:stop] += share.numpy()
            assert start == 0 or share[0] == 0
            assert stop == length or share[-1] == 0
        np.testing.assert_allclose(total, 1, rtol=1e-6)


@pytest.mark.parametrize("stride", [1, 4, 8])
@pytest.mark.parametrize("size", [(256, 320), (75, 290), (251, 97), (70, 60)])
def test_a_network_that_sees_only_around_is_not_changed_by_tiles(stride, size):
    """To rounding, for sides that no stride divides too, against PyTorch's interpolation of the whole."""
    network, image = Local(stride), noise(*size)
    x = torch.tensor(image).permute(2, 0, 1)[None].float() / 255
    expected = F.interpolate(network(x), size, mode="bilinear", align_corners=False)

    def logits(tiles: torch.Tensor, _: object) -> torch.Tensor:
        return network(tiles.permute(0, 3, 1, 2).float() / 255)

    labels, confidence = slide(logits, image, (96, 128))
    assert (labels.numpy() == expected.argmax(dim=1)[0].numpy()).mean() > 0.9999
    torch.testing.assert_close(confidence, expected.softmax(dim=1).amax(dim=1)[0], atol=1e-4, rtol=1e-4)


def test_logits_at_no_stride_of_ours_are_brought_to_full_size():
    """A network of one's own may have logits of any size."""
    image = np.repeat(np.repeat(noise(4, 4), 40, axis=0), 40, axis=1)

    def logits(tiles: torch.Tensor, _: object) -> torch.Tensor:
        return F.interpolate(tiles.permute(0, 3, 1, 2).float(), (50, 50), mode="bilinear", antialias=True)

    labels, _ = slide(logits, image, (96, 96))
    assert (labels.numpy() == image.argmax(axis=2)).mean() > 0.9


def test_features_of_the_whole_image_come_from_its_tiles():
    """A survey of what is local is what one look at the whole finds."""
    image = noise(250, 330)

    def look(tiles: torch.Tensor, _: object) -> torch.Tensor:
        return F.avg_pool2d(tiles.permute(0, 3, 1, 2).float(), 32, ceil_mode=True, count_include_pad=False)

    whole = look(torch.tensor(image)[None], None)
    torch.testing.assert_close(survey(look, image, (96, 96)), whole)


@pytest.fixture(scope="module")
def swiftnet() -> Predictor:
    """Random weights, whose classes follow context and detail."""
    network = build(Model(name="swiftnet", width=0.125), 5, seed=0).eval()
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.train().momentum = 0.5
        for _ in range(6):
            network(torch.tensor(noise(192, 256)).permute(2, 0, 1)[None] / 255)
    colours = tuple((index, 0, 0) for index in range(5))
    return Predictor(network.eval(), tuple("abcde"), colours, torch.device("cpu"), predictor.Path("m"), False)


@pytest.mark.parametrize("size", [(512, 768), (500, 700)])
def test_tiles_have_the_context_of_the_whole_image(swiftnet, size):
    """SwiftNet's pyramid pools over all of it: tiles that did not know the others would disagree with the whole."""
    ramp = np.linspace(0, 1, size[1])[None, :, None]  # no part is like the whole
    image = (noise(*size) * ramp).astype(np.uint8)
    whole, tiled = swiftnet.predict(image), swiftnet.predict(image, tile=(256, 256))
    alone = slide(lambda tiles, _: swiftnet.network(tiles.permute(0, 3, 1, 2) / 255), image, (256, 256))[0].numpy()
    agreement = (tiled.labels == whole.labels).mean()
    assert agreement > 0.995
    assert 1 - agreement < (alone != whole.labels).mean() / 2


@pytest.mark.parametrize("size", [(512, 768), (500, 700), (500, 701)])
def test_mirrored_tiles_have_the_context_of_the_whole_image(swiftnet, size):
    """As those of one view have; of a width that is no multiple of a cell's, the mirror image begins elsewhere."""
    mirrored = replace(swiftnet, network=Mirrored(swiftnet.network))
    image = (noise(*size) * np.linspace(0, 1, size[1])[None, :, None]).astype(np.uint8)
    whole, tiled = mirrored.predict(image), mirrored.predict(image, tile=(256, 256))
    alone = slide(lambda tiles, _: mirrored.network(tiles.permute(0, 3, 1, 2) / 255), image, (256, 256))[0].numpy()
    agreement = (tiled.labels == whole.labels).mean()
    assert agreement > 0.99
    assert 1 - agreement < (alone != whole.labels).mean() / 2
    assert agreement > (swiftnet.predict(image).labels == whole.labels).mean()


@pytest.mark.parametrize(("mirror", "rounds"), [(False, 2), (True, 3)])
def test_each_tile_is_told_of_and_the_last_is_that_announced(swiftnet, mirror, rounds):
    """For those who wait; a network that looks at them more than once says so beforehand."""
    model = replace(swiftnet, network=Mirrored(swiftnet.network)) if mirror else swiftnet
    told: list[tuple[int, int]] = []
    model.predict_batch([noise(160, 256)], (128, 128), True, lambda *numbers: told.append(numbers))
    total = rounds * len(spans(160, 128)) * len(spans(256, 128))
    assert total > rounds
    assert told == [(number + 1, total) for number in range(total)]


def test_large_images_are_seen_in_tiles_without_being_asked(swiftnet, monkeypatch):
    """What is larger than one pass takes is predicted as with --tile."""
    image = noise(160, 192)
    monkeypatch.setattr(predictor, "TILE", (64, 64))
    whole = swiftnet.predict(image)
    monkeypatch.setattr(predictor, "ONE_PASS", 160 * 192 - 1)
    found, tiled = swiftnet.predict(image), swiftnet.predict(image, tile=(64, 64))
    assert np.array_equal(found.confidence, tiled.confidence)
    assert not np.array_equal(found.confidence, whole.confidence)


def test_tiles_larger_than_the_image_see_it_whole(trained_run):
    """The prediction is that of the whole; tiles too small to be meant are refused."""
    model, (scene, _) = load(trained_run, "cpu"), render(0, 0, 64, 128)
    whole, tiled = model.predict(scene), model.predict(scene, tile=(500, 500))
    assert np.array_equal(whole.labels, tiled.labels)
    np.testing.assert_allclose(whole.confidence, tiled.confidence, atol=1e-5)
    assert model.predict(scene, tile=(32, 48)).labels.shape == (64, 128)
    with pytest.raises(UserError, match="32 pixels or more"):
        model.predict(scene, tile=(8, 8))
