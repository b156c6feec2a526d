"""Facts about the Wide ResNet."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from oneway.models.wrn import Block, WideResNet


def small(classes: int = 5) -> WideResNet:
    return WideResNet(classes, depth=10, width=1)


def test_parameter_counts_are_the_known_ones():
    """1,467,610 for WRN-28-2 with 10 classes (1.47 M in the literature), and 36.5 M for the paper's WRN-28-10."""
    group1 = (32 + 4608 + 64 + 9216 + 512) + 3 * 2 * (64 + 9216)
    group2 = (64 + 18432 + 128 + 36864 + 2048) + 3 * 2 * (128 + 36864)
    group3 = (128 + 73728 + 256 + 147456 + 8192) + 3 * 2 * (256 + 147456)
    assert 432 + group1 + group2 + group3 + 256 + 1290 == 1_467_610  # stem, groups, norm, head
    assert sum(p.numel() for p in WideResNet(10).parameters()) == 1_467_610
    with torch.device("meta"):
        assert sum(p.numel() for p in WideResNet(10, depth=28, width=10).parameters()) == 36_479_194


@pytest.mark.parametrize("size", [(32, 32), (33, 47)])
def test_each_image_gets_one_vector_of_logits(size):
    """At any size, odd ones too."""
    assert small().eval()(torch.rand(2, 3, *size)).shape == (2, 5)


def test_resolution_is_halved_by_the_second_and_third_group():
    """32×32 → 32×32 → 16×16 → 8×8, with 1, 2 and 4 times 16·width channels."""
    model = WideResNet(5, depth=10, width=2)
    x = model.stem(torch.rand(1, 3, 32, 32))
    shapes = [(x := group(x)).shape for group in model.groups]
    assert shapes == [(1, 32, 32, 32), (1, 64, 16, 16), (1, 128, 8, 8)]


def test_gradient_reaches_every_parameter():
    """Nothing is built that does not train."""
    model = WideResNet(5, depth=16, width=2).train()
    F.cross_entropy(model(torch.rand(4, 3, 16, 16)), torch.tensor([0, 1, 2, 3])).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_normalisation_is_inside():
    """The stem sees CIFAR-10's mean colour as zero and one deviation more as one; both travel with the weights."""
    model, seen = small().eval(), []
    model.stem.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1).expand(1, 3, 8, 8)
    model(mean)
    model(mean + torch.tensor([0.2470, 0.2435, 0.2616]).view(1, 3, 1, 1))
    torch.testing.assert_close(seen[0], torch.zeros(1, 3, 8, 8))
    torch.testing.assert_close(seen[1], torch.ones(1, 3, 8, 8))
    assert {"mean", "deviation"} <= set(model.state_dict())


@pytest.mark.parametrize(("outputs", "stride"), [(8, 1), (16, 1), (8, 2)])
def test_the_shortcut_is_the_input_or_a_projection_of_its_activation(outputs, stride):
    """With the residual branch silenced, what is left is x untouched, or the 1×1 convolution of ReLU(norm(x))."""
    block = Block(8, outputs, stride).train()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(4, 8, 6, 6)
    if block.shortcut is None:
        assert torch.equal(block(x), x)
    else:
        normed = (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()
        kept = normed.clamp(min=0)[..., ::stride, ::stride]
        torch.testing.assert_close(block(x), torch.einsum("oi,nihw->nohw", block.shortcut.weight[..., 0, 0], kept))
    assert (block.shortcut is None) == (outputs == 8 and stride == 1)


def test_the_residual_branch_activates_before_each_convolution():
    """Norm, ReLU, convolution, twice: what a block adds to its input."""
    block, x = Block(8, 8).train(), torch.randn(4, 8, 6, 6)
    branch = nn.Sequential(block.norm1, nn.ReLU(), block.conv1, block.norm2, nn.ReLU(), block.conv2)
    torch.testing.assert_close(block(x) - x, branch(x))


def test_the_head_sees_averages_of_rectified_features():
    """Of each channel over all pixels: none is negative, though a norm alone would centre them on zero."""
    model, seen = small().train(), []
    model.head.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    model(torch.rand(4, 3, 16, 16))
    assert seen[0].shape == (4, 64)
    assert seen[0].min() >= 0


def test_convolutions_start_with_he_weights_and_no_bias():
    """Variance 2 / (outputs · kernel area), the fan-out form."""
    torch.manual_seed(0)
    for module in WideResNet(10).modules():
        if isinstance(module, nn.Conv2d):
            variance = 2 / (module.out_channels * module.kernel_size[0] ** 2)
            assert module.weight.var().item() == pytest.approx(variance, rel=0.3)
            assert module.bias is None


def test_initial_weights_are_a_function_of_the_seed():
    """The same seed gives the same logits, bit by bit; another one others."""
    x, logits = torch.rand(2, 3, 32, 32), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        logits.append(small().eval()(x))
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])


@pytest.mark.parametrize(
    ("depth", "nearest"), [(27, "22 and 28"), (29, "28 and 34"), (30, "28 and 34"), (4, "10"), (-1, "10")]
)
def test_an_impossible_depth_is_refused_with_the_nearest_possible(depth, nearest):
    """Layers come in sixes, and four more."""
    with pytest.raises(ValueError, match=rf"depth {depth}: .* nearest: {nearest}\."):
        WideResNet(10, depth)
