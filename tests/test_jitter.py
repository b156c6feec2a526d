"""Facts about scale, crop and flip."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from oneway.config import Jitter
from oneway.data import IGNORE
from oneway.draws import Jitters
from oneway.jitter import PADDING, jitter_inputs, jitter_labels

HEIGHT, WIDTH = 24, 36


def world() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (1, 3, HEIGHT, WIDTH), dtype=torch.uint8, generator=generator)
    labels = torch.randint(9, (1, HEIGHT, WIDTH), dtype=torch.uint8, generator=generator)
    return images, labels


def jitters(scale: float = 1.0, top: float = 0.0, left: float = 0.0, flip: bool = False) -> Jitters:
    values = (torch.tensor([value], dtype=torch.float64) for value in (scale, top, left))
    return Jitters(torch.tensor([0]), *values, torch.tensor([flip]))


def test_scale_one_is_a_plain_crop():
    """Without scaling, the crop is a slice of image and labels; top and left run over all possible places."""
    images, labels = world()
    draw = jitters(top=0.5, left=0.99)
    x, y = jitter_inputs(images, draw, Jitter(crop=(8, 12))), jitter_labels(labels, draw, Jitter(crop=(8, 12)))
    torch.testing.assert_close(x, images[:, :, 8:16, 24:].float() / 255, atol=1e-4, rtol=0)
    assert torch.equal(y, labels[:, 8:16, 24:].long())


def test_flip_mirrors():
    """The flipped image is the image mirrored, and so are the labels."""
    images, labels = world()
    draw = jitters(flip=True)
    x, y = (
        jitter_inputs(images, draw, Jitter(crop=(HEIGHT, WIDTH))),
        jitter_labels(labels, draw, Jitter(crop=(HEIGHT, WIDTH))),
    )
    torch.testing.assert_close(x, images.flip(-1).float() / 255, atol=1e-4, rtol=0)
    assert torch.equal(y, labels.flip(-1).long())


@pytest.mark.parametrize("scale", [2 / 3, 4 / 3, 2])
def test_scaling_is_interpolation_between_pixel_centres(scale):
    """The whole scaled image equals PyTorch's bilinear, and nearest-exact, interpolation (at scales without ties)."""
    images, labels = world()
    size = (round(HEIGHT * scale), round(WIDTH * scale))
    draw = jitters(scale)
    x, y = jitter_inputs(images, draw, Jitter(crop=size), torch.float64), jitter_labels(labels, draw, Jitter(crop=size))
    torch.testing.assert_close(x, F.interpolate(images.double() / 255, size, mode="bilinear"))
    nearest = F.interpolate(labels[:, None].double(), size, mode="nearest-exact")[:, 0]
    assert torch.equal(y, nearest.long())


def test_a_crop_larger_than_the_image_is_padded_and_ignored():
    """The image lies inside the crop, all of it; around it, grey that no loss sees."""
    images, labels = world()
    draw = jitters(top=0.25, left=0.5)
    x, y = (
        jitter_inputs(images, draw, Jitter(crop=(HEIGHT + 8, WIDTH + 10))),
        jitter_labels(labels, draw, Jitter(crop=(HEIGHT + 8, WIDTH + 10))),
    )
    assert torch.equal(y[:, 2 : 2 + HEIGHT, 5 : 5 + WIDTH], labels.long())
    outside = torch.ones_like(y, dtype=torch.bool)
    outside[:, 2 : 2 + HEIGHT, 5 : 5 + WIDTH] = False
    assert (y[outside] == IGNORE).all()
    assert (x.permute(0, 2, 3, 1)[outside] == PADDING).all()


def test_each_image_is_jittered_on_its_own():
    """One row of the table per image."""
    labels = world()[1].repeat(2, 1, 1)
    both = Jitters(*(torch.cat(pair) for pair in zip(jitters(), jitters(flip=True), strict=True)))
    y = jitter_labels(labels, both, Jitter(crop=(HEIGHT, WIDTH)))
    assert torch.equal(y[0], labels[0].long())
    assert torch.equal(y[1], labels[0].flip(-1).long())


def test_padding_lets_a_crop_reach_beyond_the_border():
    """CIFAR's pad-and-crop: 4 pixels each way, nine equally likely places along an axis, no blur."""
    _, labels = world()
    config = Jitter(crop=(HEIGHT, WIDTH), padding=4)
    for fraction, offset in ((0.0, -4), (0.45, 0), (0.999, 4)):
        y = jitter_labels(labels, jitters(top=fraction, left=0.5), config)
        expected = torch.full_like(labels, IGNORE).long()
        target = slice(max(0, -offset), HEIGHT - max(0, offset))
        source = slice(max(0, offset), HEIGHT - max(0, -offset))
        expected[:, target] = labels[:, source].long()
        assert torch.equal(y, expected)


def test_points_and_labels_of_whole_images_are_left_alone():
    """What has no geometry is not cropped."""
    points = torch.rand(3, 2)
    assert torch.equal(jitter_inputs(points, jitters(), Jitter(crop=None)), points)
    labels = torch.tensor([3, 1, 2], dtype=torch.uint8)
    assert torch.equal(jitter_labels(labels, jitters(), Jitter(crop=(32, 32))), labels.long())
