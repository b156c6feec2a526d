"""Facts about depthwise convolutions and the encoders made of them, against PyTorch's own in double precision.

Like those of `test_kernels`, facts are checked in a process of their own: compiled where there is a GPU, interpreted
elsewhere. What a fused encoder is, and what it does where the kernels cannot run, is tested here and now.
"""

from __future__ import annotations

from contextlib import nullcontext
from copy import deepcopy

import pytest
import timm
import torch
from timm.layers import BatchNormAct2d, Conv2dSame
from timm.models._efficientnet_blocks import DepthwiseSeparableConv, InvertedResidual, UniversalInvertedResidual
from torch import Tensor, nn
from torch.autograd import forward_ad

from kernel_facts import DEVICE, assert_facts
from norm_facts import assert_agree, assert_same_when_fused, gradients, random, seeded, value_and_gradients
from oneway.models.fuse import FusedNorm, fuse
from oneway.models.fuse_timm import SHORTCUTS, FusedInverted, FusedSeparable, FusedUniversal
from oneway.models.norm import population_statistics
from oneway.models.stem import Depthwise
from oneway.models.swiftnet import SwiftNet
from oneway.ops import depthwise
from oneway.ops.depthwise import depthwise_by_kernel, kernel_convolves, window_of

ENCODERS = ("tf_efficientnet_lite0", "mobilenetv4_conv_medium")


def layer_of(channels: int, size: int, stride: int, same: bool = False) -> nn.Conv2d:
    kind = Conv2dSame if same else nn.Conv2d
    return kind(channels, channels, size, stride, padding=size // 2, groups=channels, bias=False).to(DEVICE)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["3", "5", "network"])
def test_facts_hold(kernel):
    """Everything below about the kernels of a size, or about all of them in a network."""
    assert_facts(__file__, f"fact_{kernel}" if kernel == "network" else f"fact_depthwise and size{kernel}")


@pytest.mark.parametrize("backbone", [ENCODERS[0], pytest.param(ENCODERS[1], marks=pytest.mark.slow)])
def test_a_fused_encoder_is_the_same_network(backbone):
    """Where the kernels cannot run, outputs, gradients, statistics and the names of all tensors are the same."""
    assert_same_when_fused(lambda: SwiftNet(3, backbone))


@pytest.mark.parametrize(
    ("backbone", "kind", "count"), [(ENCODERS[0], FusedInverted, 9), (ENCODERS[1], FusedUniversal, 18)]
)
def test_encoders_are_fused_throughout(backbone, kind, count):
    """No norm is left as it was, no depthwise convolution, and no block with a shortcut."""
    network = fuse(timm.create_model(backbone, features_only=True))
    modules = list(network.modules())
    assert not any(type(module) in (BatchNormAct2d, nn.BatchNorm2d) for module in modules)
    assert all(
        isinstance(module, Depthwise) for module in modules if isinstance(module, nn.Conv2d) and module.groups > 1
    )
    assert not any(module.has_skip for module in modules if type(module) in SHORTCUTS)
    assert sum(type(module) is kind for module in modules) == count


def test_shortcuts_that_are_dropped_or_watched_stay_where_they_are():
    """A block whose sum is more than a sum keeps its own forward pass."""
    dropping = fuse(timm.create_model("tf_efficientnet_lite0", features_only=True, drop_path_rate=0.2))
    assert sum(type(module) is FusedInverted for module in dropping.modules()) < 9
    watched = timm.create_model("tf_efficientnet_lite0", features_only=True)
    watched.blocks[1][1].drop_path.register_forward_hook(lambda module, inputs, output: None)
    assert type(fuse(watched).blocks[1][1]) is not FusedInverted


@pytest.mark.parametrize("side", [8, 9])
@pytest.mark.parametrize("size", [3, 5])
def test_padding_of_tensorflow_is_timms(size, side):
    """To the bit, with the larger half behind."""
    layer, x = layer_of(4, size, 2, same=True).cpu(), torch.rand(1, 4, side, side + 3)
    assert torch.equal(depthwise(x, layer, same=True), layer(x))


def test_activations_are_taken_over():
    """Those that these families have; an approximate one, and one that is watched, stay."""
    kinds = {nn.ReLU6: "relu6", nn.SiLU: "silu", nn.Hardswish: "hard-swish", nn.GELU: "gelu"}
    for kind, name in kinds.items():
        network = fuse(nn.Sequential(nn.BatchNorm2d(4), kind()))
        assert network[0].activation == name
        assert type(network[1]) is nn.Identity
    assert fuse(nn.Sequential(nn.BatchNorm2d(4), nn.GELU("tanh")))[0].activation == "none"
    mobile = fuse(timm.create_model("mobilenetv3_small_050", features_only=True))
    assert {norm.activation for norm in mobile.modules() if isinstance(norm, FusedNorm)} == {
        "none",
        "relu",
        "hard-swish",
    }


def test_what_is_not_for_these_kernels():
    """Tensors on the CPU are left to PyTorch."""
    assert not kernel_convolves(random(2, 3, 8, 8).cpu(), layer_of(3, 3, 1).cpu())


EACH_WINDOW = pytest.mark.parametrize(
    ("size", "stride"), [(3, 1), (3, 2), (5, 2)], ids=["size3-stride1", "size3-stride2", "size5-stride2"]
)
SHAPES = {"three channels, odd": (2, 3, 7, 5), "even": (1, 20, 6, 10), "two columns of tiles": (1, 17, 5, 18)}


@pytest.mark.parametrize("same", [False, True], ids=["centred", "same"])
@EACH_WINDOW
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def fact_depthwise_convolutions_are_pytorchs(shape, size, stride, same):
    """Values, and the gradients of pixels and weights."""
    layer = layer_of(shape[1], size, stride, same)
    x, weight = random(*shape), random(*layer.weight.shape, seed=1)
    assert kernel_convolves(x, layer)

    def reference(x: Tensor, weight: Tensor) -> Tensor:
        with torch.no_grad():
            double = deepcopy(layer).double()
        return torch.func.functional_call(double, {"weight": weight}, (x,))

    window = window_of(x, layer, same)
    assert_agree(lambda x, w: depthwise_by_kernel(x, w, window), reference, x, weight)


@EACH_WINDOW
def fact_depthwise_bfloat16_only_rounds_what_goes_in_and_out(size, stride):
    """Single precision between; weights and their gradients stay in it."""
    layer = layer_of(16, size, stride)
    x, weight = random(1, 16, 6, 7).bfloat16(), layer.weight.detach()
    window = window_of(x, layer)
    found = value_and_gradients(lambda x, w: depthwise_by_kernel(x, w, window), x, weight)
    double = deepcopy(layer).double()
    expected = value_and_gradients(
        lambda x, w: torch.func.functional_call(double, {"weight": w}, (x,)), x.double(), weight.double()
    )
    assert [tensor.dtype for tensor in found] == [torch.bfloat16, torch.bfloat16, torch.float32]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=2**-7, atol=2**-8 * b.abs().max().item())


@pytest.mark.parametrize("size", [3], ids=["size3"])
def fact_depthwise_gradients_take_any_layout_and_autocast_any_precision(size):
    """A gradient with channels first, and an input that autocast makes half precision of, as for a convolution."""
    layer = layer_of(4, size, 1)
    x, weight = random(1, 4, 5, 6), layer.weight.detach()
    window = window_of(x, layer)
    assert_agree(
        lambda x, w: depthwise_by_kernel(x, w, window).contiguous().flatten(),
        lambda x, w: torch.func.functional_call(deepcopy(layer).double(), {"weight": w}, (x,)).contiguous().flatten(),
        x,
        weight,
    )
    with torch.autocast(DEVICE.type, torch.bfloat16):
        assert depthwise(x, layer).dtype == layer(x).dtype == torch.bfloat16


@pytest.mark.parametrize("size", [3], ids=["size3"])
def fact_depthwise_is_left_to_pytorch_where_the_kernels_cannot_or_should_not(size):
    """Another layout, type, dilation, number of groups, a bias, a forward-mode derivative; where cuDNN is faster."""
    layer, x = layer_of(4, size, 1), random(1, 4, 8, 8)
    assert kernel_convolves(x, layer)
    assert not kernel_convolves(x, layer_of(4, 5, 1))
    assert not kernel_convolves(x.contiguous(), layer)
    assert not kernel_convolves(x.double(), layer)
    for options in ({"dilation": 2}, {"groups": 2}, {"bias": True}, {"padding_mode": "reflect"}, {"stride": 3}):
        other = nn.Conv2d(4, 4, size, **{"groups": 4, "bias": False, "padding": 1, **options}).to(DEVICE)
        assert not kernel_convolves(x, other)
    with forward_ad.dual_level():
        assert not kernel_convolves(forward_ad.make_dual(x, x), layer)


def small() -> nn.Sequential:
    """Blocks of three kinds, with shortcuts and without, and convolutions that are ours or PyTorch's."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        BatchNormAct2d(8, act_layer=nn.Hardswish),
        DepthwiseSeparableConv(8, 8, act_layer=nn.SiLU),
        InvertedResidual(8, 8, 5, exp_ratio=2, act_layer=nn.ReLU6),
        UniversalInvertedResidual(8, 8, 3, 0, exp_ratio=2, layer_scale_init_value=None),
        InvertedResidual(8, 8, 3, 2, exp_ratio=2, pad_type="same", act_layer=nn.ReLU6),
    )


@pytest.mark.parametrize("mode", [nullcontext, population_statistics], ids=["training", "population"])
def fact_network_of_inverted_blocks_is_the_plain_one(mode):
    """Maps, gradients and running statistics, whatever the statistics that are used."""
    plain = seeded(small).to(DEVICE)
    fused, plain = fuse(deepcopy(plain)).to(memory_format=torch.channels_last), plain.double()
    assert [type(block) for block in fused[2:5]] == [FusedSeparable, FusedInverted, FusedUniversal]
    x = torch.rand(2, 3, 12, 14, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    results = []
    for network, image in ((plain, x.double()), (fused, x.contiguous(memory_format=torch.channels_last))):
        with mode(network) if mode is not nullcontext else nullcontext():
            found = network(image)
        found.square().mean().backward()
        results.append((found.double(), gradients(network), dict(network.named_buffers())))
    (expected, gradient, buffers), (found, fused_gradient, fused_buffers) = results
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
    for name, value in buffers.items():
        torch.testing.assert_close(fused_buffers[name].double(), value.double(), rtol=1e-4, atol=1e-4, msg=name)
    for name, value in gradient.items():
        assert (fused_gradient[name].double() - value).norm() < 1e-3 * value.norm() + 1e-6, name


def fact_network_keeps_no_activation_twice():
    """For the way back, what a convolution or a norm was given: nothing that an activation or a sum needs."""
    network = fuse(small()).to(DEVICE, memory_format=torch.channels_last)
    x = torch.rand(2, 3, 8, 8).to(DEVICE, memory_format=torch.channels_last)
    x.requires_grad_()  # so that it is not folded: cells would be kept in its place
    given: set[int] = set()
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d):
            module.register_forward_pre_hook(lambda module, inputs: given.add(inputs[0].data_ptr()))
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        network(x)
    parameters = {parameter.data_ptr() for parameter in network.parameters()}
    maps = {tensor.data_ptr() for tensor in kept if tensor.ndim == 4} - parameters
    assert maps <= given
