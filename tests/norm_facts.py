"""What facts about fused norms share: networks and numbers to try them on, and PyTorch's norm to compare them with."""

from __future__ import annotations

from contextlib import nullcontext
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernel_facts import DEVICE
from oneway.models.fuse import fuse
from oneway.models.norm import frozen_statistics, population_statistics, untracked_statistics
from oneway.ops.statistics import Statistics

EPS = 1e-5

MODES = {
    "training": nullcontext,
    "untracked": untracked_statistics,
    "frozen": frozen_statistics,
    "population": population_statistics,
}

SHAPES = {
    "three channels": (2, 3, 5, 7),
    "several tiles, the last of them short": (3, 16, 33, 37),
    "no multiple of eight": (2, 42, 9, 5),
    "two columns of tiles": (1, 130, 9, 11),
    "one pixel an image": (5, 6, 1, 1),
    "one channel": (2, 1, 3, 4),
}


def seeded(build) -> nn.Module:
    """A network whose norms have learnt something."""
    torch.manual_seed(0)
    network = build()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return network


def gradients(network: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in network.named_parameters() if parameter.grad is not None}


def assert_same_when_fused(build, mode=nullcontext) -> None:
    """Where the kernels cannot run, outputs, gradients, statistics and the names of all tensors are the same."""
    plain = seeded(build)
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    results = []
    for network in (plain, fuse(deepcopy(plain))):
        with mode(network) if mode is not nullcontext else nullcontext():
            logits = network(x)
        logits.square().sum().backward()
        results.append((logits, gradients(network), network.state_dict()))
    (logits, gradient, state), (fused_logits, fused_gradient, fused_state) = results
    assert torch.equal(fused_logits, logits)
    for found, expected in ((fused_state, state), (fused_gradient, gradient)):
        assert list(found) == list(expected)
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def random(*shape: int, seed: int = 0) -> Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return (x.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else x).to(DEVICE)


def affine(channels: int) -> tuple[Tensor, Tensor]:
    """A scale, here and there negative, and a shift."""
    return random(channels, seed=1) + 0.5, 0.5 * random(channels, seed=2)


def population(channels: int) -> Statistics:
    return Statistics(random(channels, seed=3), 0.5 + random(channels, seed=4).abs())


def batches() -> Tensor:
    return torch.zeros((), dtype=torch.int64, device=DEVICE)


def plain(x: Tensor, weight: Tensor, bias: Tensor, given: Statistics | None) -> Tensor:
    """PyTorch's batch norm."""
    mean, variance = (None, None) if given is None else (given.mean.to(x.dtype), given.variance.to(x.dtype))
    return F.batch_norm(x, mean, variance, weight, bias, training=given is None, eps=EPS)


def value_and_gradients(function, *inputs: Tensor) -> list[Tensor]:
    """What a function returns, and the gradients of its inputs for a random one of its value."""
    inputs = tuple(tensor.detach().requires_grad_() for tensor in inputs)
    value = function(*inputs)
    upstream = random(*value.shape, seed=9).to(value.dtype)
    return [value.detach(), *torch.autograd.grad(value, inputs, upstream)]


def assert_agree(fused, reference, *inputs: Tensor, tolerance: float = 2e-5) -> None:
    """Value and gradients are the reference's in double precision; the tensors of an image's size keep their form."""
    found = value_and_gradients(fused, *inputs)
    expected = value_and_gradients(reference, *(tensor.double() for tensor in inputs))
    for a, b in zip(found, expected, strict=True):
        assert a.isfinite().all()
        torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=tolerance * max(1, b.abs().max().item()))
    assert found[1].dtype == inputs[0].dtype
    assert found[1].stride() == inputs[0].stride()
