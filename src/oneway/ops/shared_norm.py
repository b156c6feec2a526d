"""Synchronised batch norm: statistics of a batch of which every process has a share, in plain PyTorch.

It replaces `F.batch_norm`, which the batch norms of all networks call: ours, timm's and unknown ones.

Shapes: N×C×…, which is M numbers of each of C channels; R processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from oneway.ops.cast import at_least_float32
from oneway.ops.collective import Group, computing_with


@contextmanager
def sharing_batches(group: Group | None) -> Iterator[None]:
    """Within the block, operations and batch norm work on a batch that is divided among a group; None: it is not."""
    if group is None:
        yield
        return
    with computing_with(group), _SharedNorms(group):
        yield


def combined(mean: Tensor, variance: Tensor, group: Group) -> tuple[Tensor, Tensor]:
    """Mean and variance of all shares, from those of each."""
    means, variances = group.gather(torch.stack((mean, variance))).unbind(dim=1)
    return means.mean(dim=0), variances.mean(dim=0) + means.var(dim=0, correction=0)


def follow(running: tuple[Tensor, Tensor], mean: Tensor, variance: Tensor, count: int, momentum: float) -> None:
    """Update running statistics from those of a batch with `count` numbers per channel."""
    running[0].lerp_(mean.to(running[0].dtype), momentum)
    running[1].lerp_((variance * (count / (count - 1))).to(running[1].dtype), momentum)


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    group: Group,
) -> Tensor:
    """`F.batch_norm` in training, with the statistics of the whole group's batch."""
    running = None if running_mean is None or running_var is None else (running_mean, running_var)
    y: Tensor = _BatchNorm.apply(x, weight, bias, running, momentum, eps, group)
    return y


class _SharedNorms(TorchFunctionMode):
    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is F.batch_norm and kwargs.get("training"):
            return batch_norm(*args, **{key: kwargs[key] for key in kwargs.keys() - {"training"}}, group=self.group)
        return function(*args, **kwargs)


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running: tuple[Tensor, Tensor] | None,
        momentum: float,
        eps: float,
        group: Group,
    ) -> Tensor:
        values = at_least_float32(x)
        axes = [axis for axis in range(x.ndim) if axis != 1]
        variance, mean = torch.var_mean(values, axes, correction=0)
        mean, variance = combined(mean, variance, group)
        count = x.numel() // x.shape[1] * group.size
        if running is not None:
            follow(running, mean, variance, count, momentum)
        sharpness = (variance + eps).rsqrt()
        ctx.save_for_backward(x, weight, mean, sharpness)
        ctx.save_for_forward(x, weight, mean, sharpness)
        ctx.group, ctx.axes, ctx.count = group, axes, count
        y = _normalised(values, mean, sharpness)
        y = y if weight is None else y * _along(weight, x)
        return (y if bias is None else y + _along(bias, x)).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, sharpness = ctx.saved_tensors
        normalised, upstream = _normalised(at_least_float32(x), mean, sharpness), at_least_float32(upstream)
        sums = torch.stack((upstream.sum(ctx.axes), (upstream * normalised).sum(ctx.axes)))
        scale = sharpness if weight is None else sharpness * weight
        gradient = _without_statistics(upstream, normalised, sums, ctx) * _along(scale, x)
        of_weight, of_bias = (None, None) if weight is None else (sums[1].to(weight.dtype), sums[0].to(weight.dtype))
        return gradient.to(x.dtype), of_weight, of_bias, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, change: Tensor, *others: Any) -> Tensor:
        """Forward-mode derivative: like the backward pass, a projection and a scale."""
        x, weight, mean, sharpness = ctx.saved_tensors
        normalised, change = _normalised(at_least_float32(x), mean, sharpness), at_least_float32(change)
        sums = torch.stack((change.sum(ctx.axes), (change * normalised).sum(ctx.axes)))
        scale = sharpness if weight is None else sharpness * weight
        return (_without_statistics(change, normalised, sums, ctx) * _along(scale, x)).to(x.dtype)


def _without_statistics(change: Tensor, normalised: Tensor, sums: Tensor, ctx: Any) -> Tensor:
    """A tangent of x, or a gradient, less the terms of the batch's mean and variance."""
    first, second = ctx.group.sum(sums) / ctx.count
    return change - _along(first, change) - normalised * _along(second, change)


def _normalised(x: Tensor, mean: Tensor, sharpness: Tensor) -> Tensor:
    return (x - _along(mean, x)) * _along(sharpness, x)


def _along(channels: Tensor, x: Tensor) -> Tensor:
    return channels.view(1, -1, *[1] * (x.ndim - 2))
