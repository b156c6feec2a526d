"""Sums and means over the whole batch where each of several processes has a share of it.

A loss divides by the number of pixels that count in all shares, so that the processes' losses add up to the mean over
the batch; a norm uses the statistics of all shares. Shapes are the same in every process. In a process that trains
alone, everything here is the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Group(NamedTuple):
    """Processes that compute a step together. All of them make the same calls in the same order."""

    size: int
    rank: int
    """The rank of this process."""

    add_up: Callable[[Tensor], None]
    """All-reduce: sums a contiguous tensor over the processes, in place and the same in all to the bit."""

    fill: Callable[[Tensor], None]
    """All-gather: fills a contiguous size×… tensor, of which each process has written the row of its rank."""

    def sum(self, tensor: Tensor) -> Tensor:
        """A new tensor, without a gradient: the sum over the processes."""
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        self.add_up(total)
        return total

    def gather(self, tensor: Tensor) -> Tensor:
        """Size×…: the tensors of all processes, without a gradient."""
        rows = tensor.new_empty(self.size, *tensor.shape)
        rows[self.rank] = tensor.detach()
        self.fill(rows)
        return rows


_group: ContextVar[Group | None] = ContextVar("group", default=None)


@contextmanager
def computing_with(group: Group | None) -> Iterator[None]:
    """Within the block, operations work on a share of a batch that the group has; None: on all of it."""
    token = _group.set(group)
    try:
        yield
    finally:
        _group.reset(token)


def current() -> Group | None:
    """The current group. A backward pass must save it, since it may run in a thread without this context."""
    return _group.get()


def total(count: Tensor) -> Tensor:
    """The sum over all shares, without a gradient."""
    group = _group.get()
    return count if group is None else group.sum(count)


def total_with_gradient(values: Tensor) -> Tensor:
    """The sum over all shares, with a gradient: for losses that are not linear in the sum."""
    group = _group.get()
    if group is None:
        return values
    found: Tensor = _Total.apply(values, group)
    return found


def divided(value: Tensor) -> Tensor:
    """A value divided by the number of processes, so that the sum over processes is the value, or the mean."""
    group = _group.get()
    return value if group is None else value / group.size


def mean_of_all(values: Tensor) -> Tensor:
    """The mean over all shares, without a gradient."""
    return total(divided(values.mean()))


def gathered(values: Tensor) -> Tensor:
    """The rows of all shares, one share after another, without a gradient."""
    group = _group.get()
    return values if group is None else group.gather(values.detach()).flatten(0, 1)


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return group.sum(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return ctx.group.sum(upstream), None
