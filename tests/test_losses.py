"""Facts about the losses, against PyTorch's own and against hand-made cases."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Categorical, kl_divergence

from oneway.common.terms import IGNORE
from oneway.ops import cross_entropy, masked_kl

SHAPE = (2, 4, 8, 12)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_cross_entropy_is_the_mean_over_labelled_pixels():
    """PyTorch's mean reduction over what is not ignored."""
    logits = random(*SHAPE)
    labels = torch.randint(4, (2, 8, 12), generator=torch.Generator().manual_seed(1))
    labels[:, :3] = IGNORE
    expected = F.cross_entropy(logits, labels, ignore_index=IGNORE)
    torch.testing.assert_close(cross_entropy(logits, labels), expected)


def test_nothing_to_learn_from_gives_zero_and_no_gradient():
    """All pixels ignored, or none valid: a loss of 0 with gradients of 0, not NaN."""
    logits = random(*SHAPE).requires_grad_()
    for loss in (
        cross_entropy(logits, torch.full((2, 8, 12), IGNORE)),
        masked_kl(random(*SHAPE).softmax(1), logits, torch.zeros(2, 8, 12, dtype=torch.bool)),
    ):
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss == 0
        assert (gradient == 0).all()


def test_masked_kl_is_the_mean_divergence_over_valid_pixels():
    """Equal to torch.distributions' KL, pixel by pixel, in the order (teacher, student)."""
    target, logits = random(*SHAPE, seed=1).softmax(1), random(*SHAPE, seed=2)
    valid = random(2, 8, 12, seed=3) > 0
    pixels = kl_divergence(Categorical(target.movedim(1, -1)), Categorical(logits=logits.movedim(1, -1)))
    torch.testing.assert_close(masked_kl(target, logits, valid), pixels[valid].mean())
    torch.testing.assert_close(masked_kl(target, logits, None), pixels.mean())


def test_certain_targets_are_no_trouble():
    """0·ln 0 is 0: a one-hot target gives cross-entropy."""
    target = F.one_hot(torch.arange(4).repeat(24).view(1, 8, 12), 4).movedim(-1, 1).double()
    logits = random(1, *SHAPE[1:])
    torch.testing.assert_close(masked_kl(target, logits, None), F.cross_entropy(logits, target.argmax(1)))


@pytest.mark.parametrize("loss", ["cross_entropy", "masked_kl"])
def test_logits_are_brought_to_the_targets_resolution(loss):
    """Stride-4 logits are interpolated bilinearly before the loss, at sizes that are no multiples of 4 too."""
    logits = random(1, 4, 5, 6)
    upsampled = F.interpolate(logits, (18, 23), mode="bilinear")
    if loss == "cross_entropy":
        labels = torch.randint(4, (1, 18, 23))
        torch.testing.assert_close(cross_entropy(logits, labels), F.cross_entropy(upsampled, labels))
    else:
        target = random(1, 4, 18, 23).softmax(1)
        torch.testing.assert_close(masked_kl(target, logits, None), masked_kl(target, upsampled, None))
