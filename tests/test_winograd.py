"""Facts about 3×3 convolutions with fewer products, against PyTorch's in double precision."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oneway import models
from oneway.config import Model
from oneway.data.streets import render
from oneway.models.winograd import FEWEST_CHANNELS, WinogradConv, use_winograd
from oneway.ops import winograd
from oneway.ops.winograd import winograd_conv, winograd_weights
from oneway.tools.export.formats import FORMATS

SIZES = {"pairs": (1, 9, 12), "odd columns": (2, 6, 11), "one row": (1, 1, 8), "one cell": (1, 1, 1)}


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bias", [False, True], ids=["without bias", "with bias"])
@pytest.mark.parametrize("at_once", [winograd.AT_ONCE, 1], ids=["whole", "by rows"])
@pytest.mark.parametrize("case", SIZES)
def test_results_are_those_of_a_convolution(case, at_once, bias, monkeypatch):
    """At every border, of several images, in strips or not; and they are stored with channels last."""
    monkeypatch.setattr(winograd, "AT_ONCE", at_once)
    n, height, width = SIZES[case]
    x, weight, shift = random(0, n, 5, height, width), random(1, 7, 5, 3, 3), random(2, 7) if bias else None
    found = winograd_conv(x, winograd_weights(weight), shift)
    expected = F.conv2d(x.double(), weight.double(), shift.double() if shift is not None else None, padding=1)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("channels", [64, 256])
def test_they_err_no_more_than_pytorchs(channels):
    """On average over many cells, in single precision, with channels last as a network sees decoded images."""
    shapes = (1, channels, 24, 32), (channels, channels, 3, 3)
    x, weight = (random(0, *shape).contiguous(memory_format=torch.channels_last) for shape in shapes)
    exact = F.conv2d(x.double(), weight.double(), padding=1)
    ours, theirs = winograd_conv(x, winograd_weights(weight), None), F.conv2d(x, weight, padding=1)
    assert (ours - exact).square().mean() < 1.5 * (theirs - exact).square().mean()


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """SwiftNet-RN18 whose every block does something: at first, each is its shortcut alone."""
    network = models.build(Model(name="swiftnet"), 19, seed=0).eval().requires_grad_(False)
    for name, parameter in network.named_parameters():
        if name.endswith("bn2.weight"):
            parameter.fill_(0.5)
    return network


def test_masks_are_the_same_but_for_ties(network):
    """A pixel has another class only where float32 cannot tell the two, and logits err no more than PyTorch's."""
    x = torch.from_numpy(np.stack([render(0, index, 192, 256)[0] for index in range(2)])).permute(0, 3, 1, 2) / 255
    faster = use_winograd(copy.deepcopy(network))
    with torch.inference_mode():
        logits, plain, exact = faster(x), network(x), copy.deepcopy(network).double()(x.double())
    assert not torch.equal(logits, plain)
    assert (logits - exact).abs().max() < 1.5 * (plain - exact).abs().max()
    masks, expected = ((F.interpolate(each, (192, 256), mode="bilinear")) for each in (logits.double(), exact))
    chosen = expected.gather(1, masks.argmax(dim=1, keepdim=True))
    assert (expected.amax(dim=1, keepdim=True) - chosen).max() < 1e-5 * expected.abs().max()
    assert (masks.argmax(dim=1) == expected.argmax(dim=1)).double().mean() > 0.9999


def test_which_convolutions_are_replaced(network):
    """Those of 3×3 with many channels and without stride; weights, names and results outside inference mode stay."""
    faster, x = use_winograd(copy.deepcopy(network)), random(0, 1, 3, 64, 96)
    replaced = [module for module in faster.modules() if isinstance(module, WinogradConv)]
    wide = [m for m in network.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3) and m.stride == (1, 1)]
    assert len(replaced) == len(wide) == 16
    assert list(faster.state_dict()) == list(network.state_dict())
    with torch.no_grad():
        assert torch.equal(faster(x), network(x))
    narrow = FEWEST_CHANNELS - 1
    others = [nn.Conv2d(64, 64, 3), nn.Conv2d(64, 64, 3, padding=2, dilation=2), nn.Conv2d(64, 64, 3, 1, 1, groups=2)]
    others += [nn.Conv2d(64, 64, 3, 1, 1, padding_mode="reflect"), nn.Conv2d(narrow, 64, 3, 1, 1), nn.Conv2d(64, 64, 5)]
    assert not [m for m in use_winograd(nn.Sequential(*others)) if isinstance(m, WinogradConv)]


def test_an_exported_file_holds_the_weights_once(tmp_path):
    """The sums, which take a third more than the weights, are for this process alone; and stay there."""
    network = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *(nn.Conv2d(64, 64, 3, padding=1) for _ in range(4))).eval()
    sizes = []
    for name in ("plain", "faster"):
        FORMATS[".pt2"].write(network, "logits", tmp_path / name, {})
        sizes.append((tmp_path / name).stat().st_size)
        network = use_winograd(network)
    if not any(isinstance(module, WinogradConv) for module in network):
        pytest.skip("not on this processor")
    assert abs(sizes[1] - sizes[0]) < 1000
    assert sum(hasattr(module, "sums") for module in network) == 4
