"""Facts about the fused norm of a sum, against PyTorch's in double precision, and about the network that is made so.

Like those of `test_kernels`, facts are checked in a process of their own: compiled where there is a GPU, interpreted
elsewhere. What a fused network is, and what it does where the kernels cannot run, is tested here and now.
"""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from kernel_facts import DEVICE, assert_facts
from norm_facts import (
    EPS,
    SHAPES,
    affine,
    assert_agree,
    batches,
    plain,
    population,
    random,
    seeded,
    value_and_gradients,
)
from oneway.models.ema import init_ema, update_ema
from oneway.models.fuse import FusedNorm, FusedSumNorm, fuse
from oneway.models.fuse_timm import FusedWideBlock, FusedWideResNet
from oneway.models.wrn import WideResNet
from oneway.ops import rows
from oneway.ops.norm import kernel_sums_and_normalises, norm_by_kernel, sum_norm_by_kernel
from oneway.ops.statistics import Running, Statistics, batch_statistics

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kernel", ["sum", "network"])
def test_facts_hold(kernel):
    """Everything below about the kernels, or about them in a network."""
    assert_facts(__file__, f"fact_{kernel}")


def small() -> WideResNet:
    """Both kinds of blocks: the first of a group projects, the second does not."""
    return WideResNet(3, depth=16, width=2)


def test_a_wide_resnet_is_fused_throughout():
    """Every block leaves its sum to the norm behind it, and the last one to the norm of the head."""
    network = fuse(small())
    names = [name for name, module in network.named_modules() if isinstance(module, FusedSumNorm)]
    assert names == [*(f"groups.{group}.{block}.norm1" for group in range(3) for block in range(2)), "norm"]
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert all(isinstance(norm, FusedNorm) for norm in norms)
    assert type(network) is FusedWideResNet
    assert list(network.state_dict()) == list(small().state_dict())


@pytest.mark.parametrize("watched", ["groups.1", "groups.0.1", "groups.2.0.norm1", "norm"])
def test_sums_that_are_watched_stay_where_they_are(watched):
    """A hook sees what it always saw: one tensor, not the terms of a sum."""
    network, seen, x = seeded(small), [], torch.rand(2, 3, 8, 8)
    network.get_submodule(watched).register_forward_hook(lambda module, inputs, output: seen.append(output))
    logits, fused_logits = network(x), fuse(network)(x)
    assert torch.equal(fused_logits, logits)
    assert torch.equal(*seen)
    assert not any(isinstance(module, FusedSumNorm | FusedWideBlock) for module in network.modules())


def test_what_is_not_for_this_kernel():
    """Tensors on the CPU are left to PyTorch."""
    assert not kernel_sums_and_normalises(random(2, 3, 4, 4).cpu(), random(2, 3, 4, 4).cpu())


def fused(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor, given: Statistics | None = None) -> tuple[Tensor, Tensor]:
    return sum_norm_by_kernel(a, b, weight, bias, given, None, EPS)


def reference(
    a: Tensor, b: Tensor, weight: Tensor, bias: Tensor, given: Statistics | None = None
) -> tuple[Tensor, Tensor]:
    return a + b, F.relu(plain(a + b, weight, bias, given))


def terms(*shape: int) -> tuple[Tensor, Tensor]:
    return 2 * random(*shape) + 1, random(*shape, seed=5)


READERS = {
    "the sum and its norm": torch.cat,
    "the norm alone": lambda both: both[1],
    "the norm alone, whose mean is sent one number back": lambda both: both[1].mean(dim=(2, 3)),
}


@pytest.mark.parametrize("given", [False, True], ids=["of the batch", "of a population"])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("shape", [SHAPES["several tiles, the last of them short"], SHAPES["three channels"]])
def fact_sum_and_norm_are_pytorchs(shape, read, given):
    """Of a + b and relu(batch_norm(a + b)): their values, and the gradients of all that goes in."""
    known = population(shape[1]) if given else None
    assert_agree(
        lambda *inputs: read(fused(*inputs, known)),
        lambda *inputs: read(reference(*inputs, known)),
        *terms(*shape),
        *affine(shape[1]),
    )


@pytest.mark.parametrize("programs", [2, 512])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def fact_sum_and_norm_are_pytorchs_whatever_the_size(shape, programs, monkeypatch):
    """Rows that fill no whole number of tiles, taken by few programs or by many."""
    monkeypatch.setattr(rows, "PROGRAMS", programs)
    assert_agree(
        lambda *inputs: torch.cat(fused(*inputs)),
        lambda *inputs: torch.cat(reference(*inputs)),
        *terms(*shape),
        *affine(shape[1]),
    )


def fact_sum_without_a_reader_of_its_norm_passes_gradients_on():
    """Those of the terms are the sum's, and the norm has learnt nothing."""
    a, b = (tensor.requires_grad_() for tensor in terms(2, 3, 4, 4))
    weight, bias = (tensor.requires_grad_() for tensor in affine(3))
    upstream = random(2, 3, 4, 4, seed=9)
    found = torch.autograd.grad(fused(a, b, weight, bias)[0], (a, b, weight, bias), upstream, allow_unused=True)
    assert torch.equal(found[0], upstream)
    assert torch.equal(found[1], upstream)
    assert found[2:] == (None, None)


def fact_sum_moves_running_statistics():
    """As PyTorch moves them, over two batches, and not where there are none to move."""
    norm = nn.BatchNorm2d(16, momentum=0.3).double().to(DEVICE)
    running = Running(torch.zeros(16, device=DEVICE), torch.ones(16, device=DEVICE), batches(), 0.3)
    for seed in (1, 2):
        a, b = random(2, 16, 9, 11, seed=seed), 3 * random(2, 16, 9, 11, seed=seed + 2) + 2
        sum_norm_by_kernel(a, b, *affine(16), None, running, EPS)
        norm(a.double() + b.double())
    torch.testing.assert_close(running.mean.double(), norm.running_mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(running.variance.double(), norm.running_var, rtol=1e-5, atol=1e-6)
    assert running.batches == norm.num_batches_tracked == 2


def fact_sum_that_is_normalised_is_the_one_that_is_kept():
    """In half precision a sum is rounded: as PyTorch rounds it, and before its statistics are taken."""
    a, b = (100 * random(2, 16, 9, 11, seed=seed).half() + 1000 for seed in (1, 2))
    running = Running(torch.zeros(16, device=DEVICE), torch.ones(16, device=DEVICE), batches(), 1.0)
    total, y = sum_norm_by_kernel(a, b, *affine(16), None, running, EPS)
    assert torch.equal(total, a + b)
    mean, variance, *_ = batch_statistics(a + b)
    torch.testing.assert_close(running.mean, mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(running.variance * (197 / 198), variance, rtol=1e-5, atol=0)
    torch.testing.assert_close(y, norm_by_kernel(a + b, *affine(16), Statistics(mean, variance), EPS))
    known_total, known = sum_norm_by_kernel(a, b, *affine(16), population(16), None, EPS)
    assert torch.equal(known_total, total)
    assert torch.equal(known, norm_by_kernel(total, *affine(16), population(16), EPS))


def fact_sum_in_bfloat16_only_rounds_what_goes_in_and_out():
    """Single precision between, also where gradients of sum and norm meet: right to the last bit that there is."""
    a, b = (torch.round(4 * tensor) / 4 for tensor in terms(2, 16, 9, 11))  # sums of these are exact
    inputs = (a.bfloat16(), b.bfloat16(), *affine(16))
    found = value_and_gradients(lambda *inputs: torch.cat(fused(*inputs)), *inputs)
    expected = value_and_gradients(
        lambda *inputs: torch.cat(reference(*inputs)), *(tensor.double() for tensor in inputs)
    )
    assert [tensor.dtype for tensor in found] == [*[torch.bfloat16] * 3, *[torch.float32] * 2]
    # The upstream gradients differ by their rounding, which the sums of weight and bias gather.
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2**-7, atol=2**-8 * other.abs().max().item())


def fact_sum_keeps_only_itself():
    """For the way back, of all that has the size of an image; nothing without a gradient."""
    a, b = (tensor.requires_grad_() for tensor in terms(2, 16, 5, 5))
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        total, _ = fused(a, b, *affine(16))
        assert [tensor.data_ptr() for tensor in kept if tensor.ndim == 4] == [total.data_ptr()]
        kept.clear()
        with torch.no_grad():
            fused(a, b, *affine(16))
        assert kept == []


def fact_sum_sends_one_gradient_to_both_terms_without_mixing_them_up():
    """Terms that are read elsewhere too add to what they are sent, each to its own; one term twice is sent it twice."""
    inputs = (*terms(2, 16, 5, 7), *affine(16))
    for elsewhere in (lambda a, b: 3 * a, lambda a, b: 3 * b, lambda a, b: 3 * a + 2 * b, lambda a, b: a * b):
        assert_agree(
            lambda a, b, *rest, more=elsewhere: torch.cat((more(a, b), *fused(a * 2, b * 2, *rest), more(b, a))),
            lambda a, b, *rest, more=elsewhere: torch.cat((more(a, b), *reference(a * 2, b * 2, *rest), more(b, a))),
            *inputs,
        )
    assert_agree(
        lambda a, *rest: torch.cat(fused(a, a, *rest)), lambda a, *rest: torch.cat(reference(a, a, *rest)), *inputs[1:]
    )


def fact_sum_gives_leaves_gradients_of_their_own():
    """What accumulates in one term's gradient does not show in the other's."""
    a, b = (tensor.requires_grad_() for tensor in terms(2, 3, 4, 4))
    torch.cat(fused(a, b, *affine(3))).sum().backward()
    once = a.grad.clone()
    assert torch.equal(b.grad, once)
    (5 * a).sum().backward()
    assert torch.equal(a.grad, once + 5)
    assert torch.equal(b.grad, once)


def fact_sum_and_gradients_are_the_same_each_time():
    """To the bit."""
    inputs = (*terms(3, 16, 33, 37), *affine(16))
    first, second = (value_and_gradients(lambda *inputs: torch.cat(fused(*inputs)), *inputs) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def fact_sum_tells_autograd_that_statistics_moved():
    """A backward pass through statistics that have changed since is refused, as PyTorch refuses it."""
    a, b = terms(2, 3, 4, 4)
    running = Running(torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE), batches(), 0.1)
    _, y = fused(a.requires_grad_(), b, *affine(3), Statistics(running.mean, running.variance))
    sum_norm_by_kernel(a.detach(), b, *affine(3), None, running, EPS)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def fact_sum_is_left_to_pytorch_where_the_kernels_cannot():
    """Either term in another layout, of another type or shape, or with a forward-mode derivative."""
    a, b = terms(2, 3, 4, 4)
    assert kernel_sums_and_normalises(a, b)
    for other in (b.contiguous(), b.double(), b[:1]):
        assert not kernel_sums_and_normalises(a, other)
        assert not kernel_sums_and_normalises(other, a)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(b, a)
        assert not kernel_sums_and_normalises(a, dual)
        assert not kernel_sums_and_normalises(dual, a)


class Sums(TorchDispatchMode):
    """Counts the sums of two tensors that have the size of an image."""

    count = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        images = [value for value in arguments if isinstance(value, Tensor) and value.ndim == 4]
        self.count += function.overloadpacket in (torch.ops.aten.add, torch.ops.aten.add_) and len(images) == 2
        return function(*arguments, **(keywords or {}))


def sums_of(network: nn.Module) -> tuple[int, int]:
    """How many PyTorch does in an iteration, forwards and backwards."""
    x = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    with Sums() as forwards:
        loss = network(x.contiguous(memory_format=torch.channels_last)).square().sum()
    with Sums() as backwards:
        torch.autograd.grad(loss, list(network.parameters()))
    return forwards.count, backwards.count


def fact_network_leaves_few_sums_to_pytorch():
    """None forwards; backwards those of an activation that is convolved twice, in the three blocks that project."""
    network = seeded(small).to(DEVICE, memory_format=torch.channels_last)
    assert sums_of(network) == (6, 6)
    assert sums_of(fuse(network)) == (0, 3)


def fact_network_is_copied_with_its_sums():
    """A mean teacher predicts what the student does that it was copied from, and follows it."""
    student = fuse(seeded(small)).to(DEVICE, memory_format=torch.channels_last)
    teacher = init_ema(student)
    x = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    x = x.contiguous(memory_format=torch.channels_last)
    assert type(teacher) is FusedWideResNet
    assert torch.equal(teacher(x), student.eval()(x))
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.mul_(1.5)
    moved = deepcopy(student)
    assert not torch.equal(teacher(x), moved(x))
    update_ema(teacher, student, torch.ones((), device=DEVICE))
    assert torch.equal(teacher(x), moved(x))
