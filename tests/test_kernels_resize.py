"""Facts about the fused resize, against PyTorch's in double precision.

Like those of `test_kernels`, facts are checked in a process of their own: compiled where there is a GPU, interpreted
elsewhere. What a fused network does where the kernel cannot run is tested here and now.
"""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernel_facts import DEVICE, assert_facts
from oneway.models.fuse import fuse
from oneway.models.swiftnet import SpatialPyramid, UpsamplingBlock
from oneway.ops.resize import kernel_resizes, resize_by_kernel

pytestmark = pytest.mark.slow

SIZES = {
    "doubled": ((2, 3, 3, 4), (6, 8)),
    "doubled but for a row": ((1, 16, 4, 3), (7, 6)),
    "barely larger": ((1, 3, 3, 7), (4, 8)),
    "an odd factor, where pixels and cells share centres": ((1, 2, 2, 3), (6, 9)),
    "a coarse grid": ((1, 42, 1, 2), (4, 24)),
    "one cell": ((2, 3, 1, 1), (2, 5)),
    "a window wider than a program reads at a time": ((1, 2, 1, 2), (2, 41)),
    "more than one tile along a row": ((1, 64, 1, 20), (2, 40)),
    "more channels than a tile": ((1, 70, 2, 2), (3, 4)),
    "as it was": ((1, 3, 3, 5), (3, 5)),
    "smaller": ((1, 3, 7, 16), (3, 4)),
    "one axis larger, one smaller": ((1, 3, 3, 8), (5, 7)),
}


@pytest.mark.parametrize("kernel", ["resize", "network"])
def test_facts_hold(kernel):
    """Everything below about the kernels, or about them in a network."""
    assert_facts(__file__, f"fact_{kernel}")


@pytest.mark.parametrize("size", [(64, 96), (352, 352)], ids=["smaller than its pyramid", "larger"])
def test_a_fused_decoder_is_the_same_decoder(size):
    """On the CPU, where the kernel does not run, outputs and gradients are the same to the bit."""
    torch.manual_seed(0)
    plain = Decoder()
    fused = fuse(deepcopy(plain))
    (value, gradient), (fused_value, fused_gradient) = (
        values_and_gradients(net, *(x.cpu() for x in features(size))) for net in (plain, fused)
    )
    assert torch.equal(fused_value, value)
    assert all(torch.equal(a, b) for a, b in zip(fused_gradient, gradient, strict=True))


def test_what_is_not_for_this_kernel():
    """Tensors on the CPU are left to PyTorch."""
    assert not kernel_resizes(last(torch.zeros(2, 3, 4, 4)), (8, 8))


class Decoder(nn.Module):
    """What resizes in SwiftNet: a pyramid, and a block that brings it to twice its size."""

    def __init__(self) -> None:
        super().__init__()
        self.pyramid, self.block = SpatialPyramid(8, 6), UpsamplingBlock(4, 6)

    def forward(self, deep: Tensor, skip: Tensor) -> Tensor:
        return self.block(self.pyramid(deep), skip)


def features(size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Of strides 32 and 16, for an image of some size."""
    height, width = size
    return random(2, 8, height // 32, width // 32), random(2, 4, height // 16, width // 16, seed=1)


def values_and_gradients(network: nn.Module, *inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    value = network(*(tensor.requires_grad_() for tensor in inputs))
    return value, list(torch.autograd.grad(value.square().sum(), (*inputs, *network.parameters())))


def last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def random(*shape: int, seed: int = 0) -> Tensor:
    return last(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE))


def plain(x: Tensor, size: tuple[int, int], addend: Tensor | None = None) -> Tensor:
    """PyTorch's interpolation, and its sum."""
    y = F.interpolate(x, size, mode="bilinear", align_corners=False)
    return y if addend is None else y + addend


def resized(function, size: tuple[int, int], *inputs: Tensor, dtype: torch.dtype | None = None) -> list[Tensor]:
    """What a function makes of its inputs, and their gradients for a random one of its value."""
    inputs = tuple(tensor.detach().to(dtype or tensor.dtype).requires_grad_() for tensor in inputs)
    value = function(inputs[0], size, *inputs[1:])
    upstream = random(*value.shape, seed=9).to(inputs[0].dtype if dtype is None else dtype)
    return [value.detach(), *torch.autograd.grad(value, inputs, upstream)]


@pytest.mark.parametrize("with_addend", [True, False])
@pytest.mark.parametrize(("shape", "size"), SIZES.values(), ids=SIZES)
def fact_resize_is_pytorchs(shape, size, with_addend):
    """Value and gradients, to the rounding of single precision; all of them in channels-last layout."""
    inputs = [random(*shape), *([random(*shape[:2], *size, seed=5)] if with_addend else [])]
    found = resized(resize_by_kernel, size, *inputs)
    expected = resized(plain, size, *inputs, dtype=torch.float64)
    for a, b in zip(found, expected, strict=True):
        assert a.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(a.double(), b, rtol=0, atol=1e-6 * b.abs().max().item())


def fact_resize_of_long_sides_keeps_its_digits():
    """97 columns to 192: positions in single precision, as PyTorch has them, would lose two digits of the shares."""
    x = random(1, 1, 1, 97)
    found = resized(resize_by_kernel, (1, 192), x)
    expected = resized(plain, (1, 192), x, dtype=torch.float64)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=4e-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def fact_resize_rounds_halves_once(dtype):
    """Single precision between: where sums cancel, too, value and gradients are right to the last bit that there is."""
    inputs = [random(2, 16, 3, 4).to(dtype), random(2, 16, 6, 7, seed=5).to(dtype)]
    found = resized(resize_by_kernel, (6, 7), *inputs)
    upstream = random(2, 16, 6, 7, seed=9).to(dtype).double()
    exact = [tensor.double().requires_grad_() for tensor in inputs]
    value = plain(exact[0], (6, 7), exact[1])
    for a, b in zip(found, [value.detach(), *torch.autograd.grad(value, exact, upstream)], strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), b, rtol=torch.finfo(dtype).eps, atol=2e-6)


def fact_resize_hands_the_addend_its_gradient_as_it_is():
    """No copy of the gradient is made, and nothing of the size of an image is kept for the way back."""
    x, addend = random(1, 3, 2, 2).requires_grad_(), random(1, 3, 4, 4).requires_grad_()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        y = resize_by_kernel(x, (4, 4), addend)
    upstream = random(1, 3, 4, 4, seed=9)
    _, gradient = torch.autograd.grad(y, (x, addend), upstream)
    assert gradient.data_ptr() == upstream.data_ptr()
    assert kept == []


def fact_resize_is_repeated_to_the_bit():
    """Value and gradients of the same tensors are the same: nothing is added in an order that could change."""
    images, cells = (16, 48) if DEVICE.type == "cuda" else (1, 3)
    inputs = [random(images, 64, cells, cells), random(images, 64, 2 * cells, 2 * cells - 1, seed=5)]
    first, *others = (resized(resize_by_kernel, tuple(inputs[1].shape[2:]), *inputs) for _ in range(3))
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def fact_resize_takes_gradients_in_any_layout():
    """A mean sends one number back to all pixels; other layers keep channels first."""
    x = random(2, 3, 3, 4)
    for then in (lambda y: y.mean(dim=(2, 3), keepdim=True), lambda y: y.contiguous(), lambda y: y[:, 1:]):
        found = resized(lambda x, size, then=then: then(resize_by_kernel(x, size)), (6, 7), x)
        expected = resized(lambda x, size, then=then: then(plain(x, size)), (6, 7), x, dtype=torch.float64)
        torch.testing.assert_close(found[1].double(), expected[1], rtol=1e-6, atol=1e-6)


def fact_resize_takes_addends_in_any_layout():
    """One with channels first is added all the same."""
    x, addend = random(2, 3, 3, 4), random(2, 3, 6, 7, seed=5)
    assert torch.equal(resize_by_kernel(x, (6, 7), addend.contiguous()), resize_by_kernel(x, (6, 7), addend))


def fact_resize_not_a_number_goes_where_it_is_read():
    """A cell that is none spoils the pixels around it, a pixel's gradient the cells with a share in it; no others."""
    x, upstream = random(1, 2, 3, 4), random(1, 2, 6, 12, seed=9)
    upstream[0, 1, 2, 4] = torch.nan  # between rows 0 and 1, but in the middle of column 1
    (gradient,) = torch.autograd.grad(resize_by_kernel(x.requires_grad_(), (6, 12)), x, upstream)
    cells = torch.zeros_like(x, dtype=torch.bool)
    cells[0, 1, 0:2, 1] = True
    assert torch.equal(gradient.isnan(), cells)

    x = x.detach()
    x[0, 1, 1, 2] = torch.nan
    y = resize_by_kernel(x, (6, 8))
    pixels = torch.zeros_like(y, dtype=torch.bool)
    pixels[0, 1, 1:5, 3:7] = True
    assert torch.equal(y.isnan(), pixels)


def fact_resize_says_what_it_supports():
    """Channels last, single precision or halves, an addend of the same type and of the new size."""
    x, size = random(2, 3, 4, 5), (8, 9)
    assert kernel_resizes(x, size)
    assert kernel_resizes(x.half(), size, random(2, 3, 8, 9).half())
    assert kernel_resizes(x, (2, 2))
    assert not kernel_resizes(x[0], size)
    assert not kernel_resizes(x.double(), size)
    assert not kernel_resizes(x.contiguous(), size)
    assert not kernel_resizes(x[:, :, :, ::2], size)
    assert not kernel_resizes(x[:0], size)
    assert not kernel_resizes(x, size, random(2, 3, 8, 9).half())
    assert not kernel_resizes(x, size, random(2, 3, 4, 5))
    assert not kernel_resizes(x, size, random(1, 3, 8, 9))


@pytest.mark.parametrize("size", [(64, 96), (96, 256)], ids=["smaller than its pyramid", "larger"])
def fact_network_that_resizes_by_the_kernel_is_the_plain_one(monkeypatch, size):
    """A decoder's output and gradients; and PyTorch's interpolation is never called."""
    torch.manual_seed(0)
    exact = Decoder().to(DEVICE)
    fused = fuse(deepcopy(exact)).to(memory_format=torch.channels_last)
    expected = values_and_gradients(exact.double(), *(tensor.double() for tensor in features(size)))
    monkeypatch.delattr(F, "interpolate")
    value, gradients = values_and_gradients(fused, *features(size))
    for a, b in zip([value, *gradients], [expected[0], *expected[1]], strict=True):
        assert (a.double() - b).norm() < 1e-4 * b.norm() + 1e-6
