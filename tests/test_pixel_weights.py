"""Weights of pixels in losses: by PyTorch's own losses, for the references and for the kernels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernel_facts import DEVICE, assert_facts
from oneway import ops
from oneway.common.terms import IGNORE
from oneway.perturb import UNCHANGED


def test_facts_about_weights_hold():
    """Of pixels, in the kernels."""
    assert_facts(__file__, "weight")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_weights_of_pixels_scale_their_losses(dtype):
    """Cross-entropy and KL: the mean counts the same pixels, each loss times its weight; by PyTorch's own losses."""
    _check_weights(torch.device("cpu"), dtype)


def fact_weights_of_pixels_scale_their_losses():
    """The same by the kernels, with gradients."""
    _check_weights(DEVICE, torch.float32)


def _check_weights(device: torch.device, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, target = (torch.randn(2, 4, 5, 6, generator=generator).to(device, dtype) for _ in range(2))
    weight = torch.rand(2, 20, 24, generator=generator).to(device, dtype)
    labels = torch.randint(4, (2, 20, 24), generator=generator).to(device)
    labels[0, :3] = IGNORE
    exact = logits.double().requires_grad_()
    large = F.interpolate(exact, (20, 24), mode="bilinear")
    losses = F.cross_entropy(large, labels, ignore_index=IGNORE, reduction="none")
    p = F.interpolate(target.double(), (20, 24), mode="bilinear").softmax(dim=1)
    divergence = F.kl_div(large.log_softmax(dim=1), p, reduction="none").sum(dim=1)
    for ours, expected in (
        (lambda x: ops.cross_entropy(x, labels, weight), (weight.double() * losses).sum() / (labels != IGNORE).sum()),
        (lambda x: ops.moved_kl(target, x, UNCHANGED, (20, 24), True), (p.amax(dim=1) * divergence).mean()),
    ):
        x = logits.clone().requires_grad_()
        value = ours(x)
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-7)
        (gradient,) = torch.autograd.grad(value, x)
        (wanted,) = torch.autograd.grad(expected, exact, retain_graph=True)
        torch.testing.assert_close(gradient.double(), wanted, rtol=1e-4, atol=1e-7)
