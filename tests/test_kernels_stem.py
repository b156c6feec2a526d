"""Facts about the first convolution, on folded images, against PyTorch's own; in a process of their own."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from timm.layers import Conv2dSame
from torch import nn

from kernel_facts import DEVICE, assert_facts
from oneway.models.fuse import fuse
from oneway.models.stem import Stem
from oneway.models.swiftnet import SwiftNet
from oneway.ops.stem import kernel_folds

LAYERS = {
    "of a ResNet": (lambda: nn.Conv2d(3, 5, 7, 2, 3, bias=False), (20, 23)),
    "of a MobileNet": (lambda: nn.Conv2d(3, 4, 3, 2, 1), (13, 16)),
    "as TensorFlow pads, even sizes": (lambda: Conv2dSame(3, 4, 3, 2, bias=False), (16, 18)),
    "as TensorFlow pads, odd sizes": (lambda: Conv2dSame(3, 4, 3, 2, bias=False), (15, 17)),
    "no padding": (lambda: nn.Conv2d(3, 4, 4, 2), (12, 13)),
    "more taps than padding": (lambda: nn.Conv2d(3, 4, 5, 2, 1), (11, 14)),
}


def test_facts_hold():
    """Everything below."""
    assert_facts(__file__, "fact_")


@pytest.mark.parametrize(("build", "size"), LAYERS.values(), ids=LAYERS)
def fact_folding_changes_nothing(build, size):
    """Outputs and gradients of weights, in double precision's neighbourhood; outputs are in channels-last layout."""
    torch.manual_seed(0)
    plain = build().to(DEVICE)
    folded = deepcopy(plain)
    fuse(nn.Sequential(folded))
    assert type(folded) is Stem
    x = torch.randn(2, 3, *size, device=DEVICE)
    assert kernel_folds(x, folded)
    exact = deepcopy(plain).double()
    y, expected = folded(x), exact(x.double())
    upstream = torch.randn_like(y)
    y.backward(upstream)
    expected.backward(upstream.double())
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(folded.weight.grad.double(), exact.weight.grad, rtol=1e-4, atol=1e-4)
    assert y.is_contiguous(memory_format=torch.channels_last)


def fact_images_that_are_learnt_from_are_not_folded():
    """An adversarial perturbation needs the gradient of its input."""
    layer = fuse(nn.Sequential(nn.Conv2d(3, 4, 7, 2, 3))).to(DEVICE)[0]
    x = torch.randn(1, 3, 16, 16, device=DEVICE, requires_grad=True)
    assert not kernel_folds(x, layer)
    layer(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("backbone", ["resnet18", "tf_efficientnet_lite0", "mobilenetv4_conv_small"])
def test_every_encoder_has_one_stem(backbone):
    """And without kernels it is the layer that it was."""
    torch.manual_seed(0)
    plain = SwiftNet(3, backbone).eval()
    fused = fuse(deepcopy(plain))
    assert sum(type(module) is Stem for module in fused.modules()) == 1
    x = torch.rand(1, 3, 64, 64)
    assert torch.equal(plain(x), fused(x))
