"""Weights in bfloat16 for a whole network at once: what autocast does layer by layer, to the bit."""

from __future__ import annotations

from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch
from torch import nn

from oneway.models.fuse import fuse
from oneway.models.precision import Conv, weights_in
from oneway.models.swiftnet import SwiftNet
from oneway.models.wrn import WideResNet
from oneway.ops.cast import Uses

X = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
NETWORKS = {
    "segmentation": lambda: SwiftNet(3, "resnet18", width=0.125),
    "depthwise layers": lambda: SwiftNet(3, "tf_efficientnet_lite0"),
    "a linear head": lambda: WideResNet(3, depth=10, width=1),
}


def losses_and_gradients(network: nn.Module, cast: bool) -> list[torch.Tensor]:
    """Of two losses, one after the other, as a step has them; some weights do not learn."""
    found = []
    with torch.autocast("cpu", torch.bfloat16), weights_in(torch.bfloat16, network) if cast else nullcontext():
        for x in (X, X.flip(2)):
            loss = network(x).float().square().mean()
            loss.backward()
            found.append(loss.detach())
    return found + [parameter.grad for parameter in network.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS)
def test_one_cast_is_that_of_autocast(build):
    """Losses and gradients are the same to the bit, in single precision, and frozen weights get none."""
    torch.manual_seed(0)
    network = fuse(build().to(memory_format=torch.channels_last))
    next(module for module in network.modules() if type(module) is Conv).requires_grad_(False)
    layerwise, together = (losses_and_gradients(deepcopy(network), cast) for cast in (False, True))
    assert len(layerwise) > 10
    assert all(torch.equal(a, b) for a, b in zip(layerwise, together, strict=True))
    assert {gradient.dtype for gradient in together} == {torch.float32}


def test_a_layer_that_is_used_twice_gets_both_gradients():
    """In one loss and in two; only where a weight is used once may its gradient be computed beside others."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1))
    alone, sums = [], []
    for kind in (nn.Conv2d, Conv):
        for layer in network:
            layer.__class__ = kind
        network.zero_grad()
        with torch.autocast("cpu", torch.bfloat16), weights_in(torch.bfloat16, network):
            (network(X) * network(network(X))).float().mean().backward()
            network(X).float().mean().backward()
            alone.append(network[0].cast[0].uses.count if kind is Conv else 0)
        sums.append([parameter.grad.clone() for parameter in network.parameters()])
    assert alone == [0, 0]
    assert all(torch.equal(a, b) for a, b in zip(*sums, strict=True))
    uses = Uses()
    assert [uses.begin(), uses.end()] == [None, True]
    uses.begin(), uses.begin()
    assert [uses.end(), uses.end()] == [False, False]
    assert [uses.begin(), uses.end()] == [None, True]


def test_nothing_is_left_behind():
    """After the block, and after an error in it, layers have their parameters alone, which were never replaced."""
    network = fuse(SwiftNet(3, "resnet18", width=0.125))
    before = dict(network.named_parameters())

    def look_and_fail() -> None:
        with weights_in(torch.bfloat16, network):
            assert network.head[2].cast[0].dtype == torch.bfloat16
            assert dict(network.named_parameters()).keys() == before.keys()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        look_and_fail()
    assert network.head[2].cast is None
    after = dict(network.named_parameters())
    assert all(before[name] is after[name] for name in before)


def test_without_autocast_layers_have_their_own_precision():
    """A method may leave autocast for a while, to differentiate forwards, say."""
    network = fuse(SwiftNet(3, "resnet18", width=0.125)).eval()
    expected = network(X)
    with torch.autocast("cpu", torch.bfloat16), weights_in(torch.bfloat16, network):
        with torch.autocast("cpu", enabled=False):
            assert torch.equal(network(X), expected)
        assert network(X).dtype == torch.bfloat16


class Scaled(nn.Conv2d):
    """A layer that computes with its weights before it uses them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.weight.dtype == torch.float32
        return self._conv_forward(x, self.weight / self.weight.norm(), self.bias)


def test_layers_of_a_kind_of_their_own_are_left_alone():
    """They may do more with their weights than multiply."""
    network = fuse(nn.Sequential(Scaled(3, 4, 3), nn.Conv2d(4, 2, 1)))
    with torch.autocast("cpu", torch.bfloat16), weights_in(torch.bfloat16, network):
        network(X).float().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
