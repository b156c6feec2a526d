"""Facts about scale, crop and flip."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from oneway.common.terms import IGNORE
from oneway.config import Jitter
from oneway.data import Samples
from oneway.draws import CropDraws
from oneway.engine.jitter import PADDING, jitter_inputs, jitter_labels
from oneway.engine.store import Store

HEIGHT, WIDTH = 24, 36


def world() -> tuple[torch.Tensor, torch.Tensor, Store]:
    """An image and its labels, and the store that holds them behind a smaller image."""
    random = np.random.default_rng(0)
    sizes = np.array([(5, 7), (HEIGHT, WIDTH)])
    pixels = random.integers(256, size=(sizes.prod(axis=1).sum(), 3), dtype=np.uint8)
    labels = random.integers(9, size=len(pixels), dtype=np.uint8)
    samples = Samples(("small", "large"), sizes, pixels, labels, labelled=2, dense=True, content="")
    image = torch.from_numpy(samples.image(1)).permute(2, 0, 1)[None]
    return image, torch.from_numpy(samples.label_map(1))[None], Store.hold(samples, torch.device("cpu"))


def jitters(scale: float = 1.0, top: float = 0.0, left: float = 0.0, flip: bool = False) -> CropDraws:
    values = (torch.tensor([value], dtype=torch.float64) for value in (scale, top, left))
    return CropDraws(torch.tensor([1]), *values, torch.tensor([flip]))


def test_scale_one_is_a_plain_crop():
    """Without scaling, the crop is a slice of image and labels; top and left run over all possible places."""
    images, labels, store = world()
    draw = jitters(top=0.5, left=0.99)
    x, y = jitter_inputs(store, draw, Jitter(crop=(8, 12))), jitter_labels(store, draw, Jitter(crop=(8, 12)))
    torch.testing.assert_close(x, images[:, :, 8:16, 24:].float() / 255, atol=1e-7, rtol=0)
    assert torch.equal(y, labels[:, 8:16, 24:].long())


def test_flip_mirrors():
    """The flipped image is the image mirrored, and so are the labels."""
    images, labels, store = world()
    draw = jitters(flip=True)
    x, y = (
        jitter_inputs(store, draw, Jitter(crop=(HEIGHT, WIDTH))),
        jitter_labels(store, draw, Jitter(crop=(HEIGHT, WIDTH))),
    )
    torch.testing.assert_close(x, images.flip(-1).float() / 255, atol=1e-7, rtol=0)
    assert torch.equal(y, labels.flip(-1).long())


@pytest.mark.parametrize("scale", [2 / 3, 4 / 3, 2])
def test_scaling_is_interpolation_between_pixel_centres(scale):
    """The whole scaled image equals PyTorch's bilinear, and nearest-exact, interpolation (at scales without ties)."""
    images, labels, store = world()
    size = (round(HEIGHT * scale), round(WIDTH * scale))
    draw = jitters(scale)
    x, y = jitter_inputs(store, draw, Jitter(crop=size)), jitter_labels(store, draw, Jitter(crop=size))
    torch.testing.assert_close(x, F.interpolate(images.float() / 255, size, mode="bilinear"))
    nearest = F.interpolate(labels[:, None].double(), size, mode="nearest-exact")[:, 0]
    assert torch.equal(y, nearest.long())


def test_a_crop_larger_than_the_image_is_padded_and_ignored():
    """The image lies inside the crop, all of it; around it, grey that no loss sees."""
    _, labels, store = world()
    draw = jitters(top=0.25, left=0.5)
    x, y = (
        jitter_inputs(store, draw, Jitter(crop=(HEIGHT + 8, WIDTH + 10))),
        jitter_labels(store, draw, Jitter(crop=(HEIGHT + 8, WIDTH + 10))),
    )
    assert torch.equal(y[:, 2 : 2 + HEIGHT, 5 : 5 + WIDTH], labels.long())
    outside = torch.ones_like(y, dtype=torch.bool)
    outside[:, 2 : 2 + HEIGHT, 5 : 5 + WIDTH] = False
    assert (y[outside] == IGNORE).all()
    assert (x.permute(0, 2, 3, 1)[outside] == PADDING).all()


@pytest.mark.parametrize("flip", [False, True])
def test_an_image_may_go_on_as_its_mirror_image(flip):
    """NumPy's symmetric padding, of pixels and labels, however far beyond the border."""
    images, labels, store = world()
    beyond = 2 * HEIGHT + 3  # so far that the image is met a second time
    crop = (HEIGHT + 2 * beyond, WIDTH + 2 * beyond)
    draw, config = jitters(top=0.5, left=0.5, flip=flip), Jitter(crop=crop, beyond="mirror")
    x, y = jitter_inputs(store, draw, config), jitter_labels(store, draw, config)
    border = ((beyond, beyond), (beyond, beyond))
    expected = (
        np.pad(labels[0].numpy(), border, mode="symmetric"),
        np.pad(images[0].numpy(), ((0, 0), *border), mode="symmetric"),
    )
    mirrored = [np.flip(one, axis=-1).copy() if flip else one for one in expected]
    assert np.array_equal(y[0], mirrored[0])
    np.testing.assert_allclose(x[0], mirrored[1] / 255, atol=1e-6)


def test_each_image_is_jittered_on_its_own():
    """One row of the table per image."""
    _, labels, store = world()
    both = CropDraws(*(torch.cat(pair) for pair in zip(jitters(), jitters(flip=True), strict=True)))
    y = jitter_labels(store, both, Jitter(crop=(HEIGHT, WIDTH)))
    assert torch.equal(y[0], labels[0].long())
    assert torch.equal(y[1], labels[0].flip(-1).long())


def test_images_of_different_sizes_share_a_batch():
    """Each is scaled by its own size: at scale 1, each crop's corner is its image's corner."""
    _, labels, store = world()
    draw = CropDraws(torch.tensor([0, 1]), torch.ones(2), torch.zeros(2), torch.zeros(2), torch.zeros(2, dtype=bool))
    y = jitter_labels(store, draw, Jitter(crop=(5, 7)))
    assert torch.equal(y[0], store.labels[:35].view(5, 7).long())
    assert torch.equal(y[1], labels[0, :5, :7].long())


def test_padding_lets_a_crop_reach_beyond_the_border():
    """CIFAR's pad-and-crop: 4 pixels each way, nine equally likely places along an axis, no blur."""
    _, labels, store = world()
    config = Jitter(crop=(HEIGHT, WIDTH), padding=4)
    for fraction, offset in ((0.0, -4), (0.45, 0), (0.999, 4)):
        y = jitter_labels(store, jitters(top=fraction, left=0.5), config)
        expected = torch.full_like(labels, IGNORE).long()
        target = slice(max(0, -offset), HEIGHT - max(0, offset))
        source = slice(max(0, offset), HEIGHT - max(0, -offset))
        expected[:, target] = labels[:, source].long()
        assert torch.equal(y, expected)


def test_points_and_labels_of_whole_images_are_left_alone():
    """What has no geometry is not cropped."""
    points, classes = np.random.default_rng(0).random((3, 2), np.float32), np.array([3, 1, 2], np.uint8)
    store = Store.hold(Samples.stacked(("a", "b", "c"), points, classes), torch.device("cpu"))
    assert jitter_inputs(store, jitters(), Jitter(crop=None)).tolist() == [points[1].tolist()]
    assert jitter_labels(store, jitters(), Jitter(crop=(32, 32))).tolist() == [1]
