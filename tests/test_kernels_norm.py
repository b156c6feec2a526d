"""Facts about the fused norms, against PyTorch's own in double precision.

Like those of `test_kernels`, facts are checked in a process of their own: compiled where there is a GPU, interpreted
elsewhere. What a fused network does where the kernels cannot run is tested here and now.
"""

from __future__ import annotations

from contextlib import nullcontext
from copy import deepcopy

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor, nn
from torch.autograd import forward_ad

from kernel_facts import DEVICE, assert_facts
from norm_facts import (
    EPS,
    MODES,
    SHAPES,
    affine,
    assert_agree,
    assert_same_when_fused,
    batches,
    gradients,
    plain,
    population,
    random,
    seeded,
    value_and_gradients,
)
from oneway.models.fuse import FusedNorm, FusedNormPool, fuse
from oneway.models.swiftnet import SwiftNet
from oneway.models.wrn import WideResNet
from oneway.ops import rows
from oneway.ops.norm import kernel_normalises, norm_by_kernel
from oneway.ops.norm_pool import norm_pool_by_kernel
from oneway.ops.statistics import Running, Statistics, batch_statistics

pytestmark = pytest.mark.slow

NETWORKS = {
    "basic blocks": lambda: SwiftNet(3, "resnet18", width=0.125),
    "bottlenecks": lambda: SwiftNet(3, "resnet50", width=0.125),
    "norms with activations inside": lambda: SwiftNet(3, "regnetx_002"),
    "blocks that activate first": lambda: WideResNet(3, depth=16, width=1),
    "blocks with more between norm and sum": lambda: timm.create_model("seresnet18", num_classes=3),
    "a deep stem": lambda: timm.create_model("resnet18d", num_classes=3),
}


@pytest.mark.parametrize("kernel", ["statistics", "rectified", "activated", "pooled", "network"])
def test_facts_hold(kernel):
    """Everything below about one kernel, or about all of them in a network."""
    assert_facts(__file__, f"fact_{kernel}")


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS)
def test_a_fused_network_is_the_same_network(build, mode):
    """Where the kernels cannot run, outputs, gradients and running statistics are the same to the bit."""
    assert_same_when_fused(build, mode)


def test_fusing_moves_no_parameter():
    """An optimiser that holds a network's parameters holds the fused one's, and so does a copy's checkpoint."""
    network = SwiftNet(3, "resnet18", width=0.125)
    parameters = list(network.parameters())
    assert all(a is b for a, b in zip(fuse(network).parameters(), parameters, strict=True))
    assert deepcopy(network).load_state_dict(SwiftNet(3, "resnet18", width=0.125).state_dict())


def test_swiftnet_is_fused_throughout():
    """No norm is left as it was, no ReLU but those between the encoder's sums and its next stage."""
    network = fuse(SwiftNet(3, "resnet18", width=0.125))
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert all(isinstance(norm, FusedNorm) for norm in norms)
    assert isinstance(network.encoder.net.bn1, FusedNormPool)
    assert [name for name, module in network.named_modules() if isinstance(module, nn.ReLU)] == ["encoder.rectify"]


def test_what_is_watched_is_left_alone():
    """A hook on a norm still sees what it gave before the ReLU."""
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
    seen = []
    network[1].register_forward_hook(lambda module, inputs, output: seen.append(output.min().item()))
    fuse(network)(torch.randn(2, 3, 5, 5))
    assert seen[0] < 0


def test_what_is_not_for_these_kernels():
    """Tensors on the CPU are left to PyTorch."""
    assert not kernel_normalises(torch.zeros(2, 3, 4, 4))


@pytest.fixture(params=[2, 512], ids=["two programs", "many programs"])
def programs(request, monkeypatch) -> None:
    """Programs that walk through several tiles, and such that have one each."""
    monkeypatch.setattr(rows, "PROGRAMS", request.param)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def fact_statistics_are_those_of_the_batch(shape):
    """Mean and biased variance, and running ones as PyTorch moves them, over two batches."""
    norm = nn.BatchNorm2d(shape[1], momentum=0.3).double().to(DEVICE)
    running = Running(
        *(buffer.clone() for buffer in (norm.running_mean.float(), norm.running_var.float())), batches(), 0.3
    )
    for seed in (1, 2):
        x = 3 * random(*shape, seed=seed) + 2
        mean, variance, *_ = batch_statistics(x, running)
        norm(x.double())
        expected_variance, expected_mean = torch.var_mean(x.double(), dim=(0, 2, 3), correction=0)
        torch.testing.assert_close(mean.double(), expected_mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(variance.double(), expected_variance, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(running.mean.double(), norm.running_mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(running.variance.double(), norm.running_var, rtol=1e-5, atol=1e-6)
    assert running.batches == norm.num_batches_tracked == 2


@pytest.mark.usefixtures("programs")
def fact_statistics_of_a_small_variance_survive_a_large_mean():
    """Mean 100, deviation 0.1: a sum of squares would lose the variance. And a batch that begins with an outlier."""
    x = 100 + 0.1 * random(2, 16, 40, 41)
    x[0, :, 0, 0] = 0
    for batch in (x, x[1:]):
        mean, variance, *_ = batch_statistics(batch)
        expected, expected_mean = torch.var_mean(batch.double(), dim=(0, 2, 3), correction=0)
        torch.testing.assert_close(mean.double(), expected_mean, rtol=1e-6, atol=0)
        torch.testing.assert_close(variance.double(), expected, rtol=1e-4, atol=0)


def fact_statistics_tell_autograd_that_they_moved():
    """A backward pass through statistics that have changed since is refused, as PyTorch refuses it."""
    x = random(2, 3, 4, 4)
    running = Running(torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE), batches(), 0.1)
    y = norm_by_kernel(x.requires_grad_(), *affine(3), Statistics(running.mean, running.variance), EPS)
    batch_statistics(x.detach(), running)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("given", [False, True], ids=["of the batch", "of a population"])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("with_residual", [True, False])
@pytest.mark.parametrize("shape", [SHAPES["several tiles, the last of them short"], SHAPES["three channels"]])
def fact_rectified_norms_and_sums_are_pytorchs(shape, with_residual, relu, given):
    """relu(batch_norm(x) + residual): its value, and the gradients of all that goes in."""
    known = population(shape[1]) if given else None
    inputs = [2 * random(*shape) + 1, *affine(shape[1])]
    residual = [random(*shape, seed=5)] if with_residual else []

    def fused(x, weight, bias, *residual):
        statistics = batch_statistics(x.detach()) if known is None else known
        return norm_by_kernel(x, weight, bias, statistics, EPS, "relu" if relu else "none", *residual)

    def reference(x, weight, bias, *residual):
        y = sum(residual, plain(x, weight, bias, known))
        return F.relu(y) if relu else y

    assert_agree(fused, reference, *inputs, *residual)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def fact_rectified_norms_are_pytorchs_whatever_the_size(shape):
    """Sums over rows that fill no whole number of tiles, taken by few programs or by many."""
    assert_agree(
        lambda x, w, b: norm_by_kernel(x, w, b, batch_statistics(x.detach()), EPS),
        lambda x, w, b: F.relu(plain(x, w, b, None)),
        2 * random(*shape) + 1,
        *affine(shape[1]),
    )


@pytest.mark.parametrize("with_residual", [True, False])
def fact_rectified_bfloat16_only_rounds_what_goes_in_and_out(with_residual):
    """Single precision between: value and gradients of the same numbers, to the last bit that there is."""
    x, residual = random(2, 16, 9, 11).bfloat16(), random(2, 16, 9, 11, seed=5).bfloat16()
    inputs = [x, *affine(16), *([residual] if with_residual else [])]
    found = value_and_gradients(
        lambda x, w, b, *r: norm_by_kernel(x, w, b, batch_statistics(x.detach()), EPS, "relu", *r), *inputs
    )
    expected = value_and_gradients(
        lambda x, w, b, *r: F.relu(sum(r, plain(x, w, b, None))), *(tensor.double() for tensor in inputs)
    )
    assert [tensor.dtype for tensor in found[:4]] == [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32]
    # The upstream gradients differ by their rounding, which the sums of weight and bias gather.
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=2**-7, atol=2**-8 * b.abs().max().item())


ACTIVATIONS = {"relu6": F.relu6, "silu": F.silu, "hard-swish": F.hardswish, "gelu": F.gelu}


@pytest.mark.parametrize("given", [False, True], ids=["of the batch", "of a population"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def fact_activated_norms_are_pytorchs(name, given):
    """Values and gradients, on all pieces of the activation; x alone is kept for the way back."""
    shape = SHAPES["several tiles, the last of them short"]
    known = population(shape[1]) if given else None
    kept: list[Tensor] = []

    def fused(x, weight, bias):
        statistics = batch_statistics(x.detach()) if known is None else known
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t)
        with hooks:
            return norm_by_kernel(x, weight, bias, statistics, EPS, name)

    weight, bias = affine(shape[1])
    inputs = (2 * random(*shape) + 1, 4 * weight, 2 * bias)
    assert_agree(fused, lambda x, w, b: ACTIVATIONS[name](plain(x, w, b, known)), *inputs)
    assert [tensor.shape for tensor in kept if tensor.ndim == 4] == [torch.Size(shape)]


@pytest.mark.parametrize("name", ACTIVATIONS)
def fact_activated_not_a_number_is_not_hidden(name):
    """Nor is it by PyTorch's."""
    x = random(1, 2, 4, 4)
    x[0, 1, 2, 2] = torch.nan
    y = norm_by_kernel(x, *affine(2), population(2), EPS, name)
    assert y[0, 0].isfinite().all()
    assert y[0, 1].isnan().sum() == 1


def fact_activated_bfloat16_only_rounds_what_goes_in_and_out():
    """Single precision between, where the slope of the activation is taken too."""
    inputs = [random(2, 16, 9, 11).bfloat16(), *affine(16)]
    found = value_and_gradients(
        lambda x, w, b: norm_by_kernel(x, w, b, batch_statistics(x.detach()), EPS, "silu"), *inputs
    )
    expected = value_and_gradients(
        lambda x, w, b: F.silu(plain(x, w, b, None)), *(tensor.double() for tensor in inputs)
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=2**-7, atol=2**-8 * b.abs().max().item())


def fact_rectified_norms_keep_only_what_they_were_given():
    """For the way back, x, and with a residual y, which the next layer keeps anyway; nothing without a gradient."""
    x, residual = random(2, 16, 5, 5).requires_grad_(), random(2, 16, 5, 5, seed=5)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        statistics = batch_statistics(x.detach())
        norm_by_kernel(x, *affine(16), statistics, EPS)
        assert [tensor.data_ptr() for tensor in kept if tensor.ndim == 4] == [x.data_ptr()]
        kept.clear()
        y = norm_by_kernel(x, *affine(16), statistics, EPS, "relu", residual)
        assert {tensor.data_ptr() for tensor in kept if tensor.ndim == 4} == {x.data_ptr(), y.data_ptr()}
        kept.clear()
        with torch.no_grad():
            norm_by_kernel(x, *affine(16), statistics, EPS)
        assert kept == []


def fact_rectified_norms_take_gradients_in_any_layout():
    """A mean over pixels sends one number back to all of them; other layers keep channels first."""
    inputs = (random(2, 16, 5, 7), *affine(16))
    assert_agree(
        lambda x, w, b: norm_by_kernel(x, w, b, batch_statistics(x.detach()), EPS).mean(dim=(2, 3)),
        lambda x, w, b: F.relu(plain(x, w, b, None)).mean(dim=(2, 3)),
        *inputs,
    )
    assert_agree(
        lambda x, w, b: norm_by_kernel(x, w, b, batch_statistics(x.detach()), EPS).contiguous().flatten(),
        lambda x, w, b: F.relu(plain(x, w, b, None)).contiguous().flatten(),
        *inputs,
    )


@pytest.mark.parametrize("norm", [norm_by_kernel, norm_pool_by_kernel])
def fact_rectified_not_a_number_is_not_hidden(norm):
    """ReLU and max-pool let NaN through, as PyTorch's do, so that a run that diverges is seen to."""
    x = random(1, 2, 4, 4)
    x[0, 1, 2, 2] = torch.nan
    y = norm(x, *affine(2), population(2), EPS)
    assert y[0, 0].isfinite().all()
    assert y[0, 1].isnan().any()


POOLED_SHAPES = {
    "even": (2, 3, 6, 8),
    "odd": (3, 16, 9, 11),
    "two columns of tiles": (1, 130, 5, 4),
    "several tiles, the last of them short": (2, 64, 13, 14),
    "a row": (2, 5, 1, 6),
    "one pixel an image": (5, 6, 1, 1),
}


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("shape", POOLED_SHAPES.values(), ids=POOLED_SHAPES)
def fact_pooled_norms_are_pytorchs(shape):
    """max_pool2d(relu(batch_norm(x)), 3, 2, 1): its value, and the gradients of all that goes in."""
    assert_agree(
        lambda x, w, b: norm_pool_by_kernel(x, w, b, batch_statistics(x.detach()), EPS),
        lambda x, w, b: F.max_pool2d(F.relu(plain(x, w, b, None)), 3, 2, 1),
        2 * random(*shape) + 1,
        *affine(shape[1]),
    )


def fact_pooled_ties_go_to_the_first():
    """Equal pixels in a window, normalised as a population: the first has the whole gradient, as in PyTorch."""
    assert_agree(
        lambda x, w, b: norm_pool_by_kernel(x, w, b, population(3), EPS),
        lambda x, w, b: F.max_pool2d(F.relu(plain(x, w, b, population(3))), 3, 2, 1),
        torch.round(random(2, 3, 7, 7)),
        *affine(3),
    )


def fact_pooled_bfloat16_keeps_its_type():
    """What comes out is rounded once."""
    x = random(2, 16, 9, 11).bfloat16()
    y = norm_pool_by_kernel(x, *affine(16), batch_statistics(x), EPS)
    weight, bias = (tensor.double() for tensor in affine(16))
    expected = F.max_pool2d(F.relu(plain(x.double(), weight, bias, None)), 3, 2, 1)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), expected, rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize(
    ("build", "side"),
    [
        (lambda: ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3, channels=(8, 8, 8, 8)), 48),
        (lambda: WideResNet(3, depth=16, width=1), 12),
    ],
    ids=["ResNet", "Wide ResNet"],
)
def fact_network_of_fused_norms_is_the_plain_one(build, side, mode):
    """Logits, gradients and running statistics of small networks, whatever the statistics they are to use."""
    plain = seeded(build).to(DEVICE)
    fused = fuse(deepcopy(plain)).to(memory_format=torch.channels_last)
    plain = plain.double()
    # Not four: PyTorch 2.15 crashes on the CPU in the way back through channels-last 1×1 convolutions of stride 2.
    x = torch.rand(3, 3, side, side, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    results = []
    for network, image in ((plain, x.double()), (fused, x.contiguous(memory_format=torch.channels_last))):
        with mode(network) if mode is not nullcontext else nullcontext():
            logits = network(image)
        logits.square().mean().backward()
        buffers = {name: value.double() for name, value in network.named_buffers()}
        results.append((logits, gradients(network), buffers))
    (logits, gradient, buffers), (fused_logits, fused_gradient, fused_buffers) = results
    torch.testing.assert_close(fused_logits.double(), logits, rtol=1e-3, atol=1e-3 * logits.abs().max().item())
    for name, value in buffers.items():
        torch.testing.assert_close(fused_buffers[name], value, rtol=1e-3, atol=1e-4, msg=name)
    for name, value in gradient.items():
        error = (fused_gradient[name].double() - value).norm()
        assert error < 2e-2 * value.norm() + 1e-6, name


def fact_network_has_forward_mode_derivatives():
    """Those of the plain one: where they are asked for, the norms are PyTorch's."""
    plain = seeded(lambda: WideResNet(3, depth=10, width=1)).to(DEVICE, memory_format=torch.channels_last)
    x, direction = torch.rand(2, 2, 3, 8, 8, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    derivatives = []
    for network in (plain, fuse(deepcopy(plain))):
        with forward_ad.dual_level():
            derivatives.append(forward_ad.unpack_dual(network(forward_ad.make_dual(x, direction))).tangent)
    assert derivatives[0].abs().max() > 0
    torch.testing.assert_close(*derivatives)
