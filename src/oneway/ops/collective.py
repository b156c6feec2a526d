"""What an operation needs of the whole batch where several processes have a share of it each.

A loss divides by the number of pixels that count in all shares, so that what the processes return adds up to the mean
over the batch; a norm has the statistics of all shares. Shapes are the same in every process. In a process that trains
alone, a share is the whole, and nothing here changes anything.
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
    """Processes that compute a step together. What one calls, all call, in the same order."""

    size: int
    rank: int
    """Which of them this is."""

    add_up: Callable[[Tensor], None]
    """Makes a contiguous tensor the sum over the processes, the same in each of them to the bit."""

    fill: Callable[[Tensor], None]
    """Fills in size×…, contiguous, of which each process has filled the row of its rank."""

    def sum(self, tensor: Tensor) -> Tensor:
        """A new tensor, without a gradient: the sum over the processes."""
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        self.add_up(total)
        return total

    def gather(self, tensor: Tensor) -> Tensor:
        """Size×…: the tensors of all processes, likewise."""
        rows = tensor.new_empty(self.size, *tensor.shape)
        rows[self.rank] = tensor.detach()
        self.fill(rows)
        return rows


_group: ContextVar[Group | None] = ContextVar("group", default=None)


@contextmanager
def computing_with(group: Group | None) -> Iterator[None]:
    """Within the block, operations have a share of a batch each; None: all of it."""
    token = _group.set(group)
    try:
        yield
    finally:
        _group.reset(token)


def current() -> Group | None:
    """The group of the block; a backward pass may run in a thread that does not know it, and has to keep it."""
    return _group.get()


def total(count: Tensor) -> Tensor:
    """The sum over all shares, without a gradient."""
    group = _group.get()
    return count if group is None else group.sum(count)


def total_with_gradient(values: Tensor) -> Tensor:
    """The same for what is not linear in the sum, with the gradient of all that the processes make of it."""
    group = _group.get()
    if group is None:
        return values
    found: Tensor = _Total.apply(values, group)
    return found


def divided(value: Tensor) -> Tensor:
    """What all processes have alike, or have a mean of, so that their values add up to it, or to the mean."""
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
