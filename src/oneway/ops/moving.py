"""Moving averages of many tensors, in one pass over all of them where PyTorch takes three.

A program has a piece of one tensor, and finds in a table where its numbers lie. The table stays where it is, so that a
captured step finds it again.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case)

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from oneway.ops.backend import kernels_run, tl, triton

PIECE = 4096
"""Numbers that a program has."""
ALIGNMENT = 16
"""Of tensors, in bytes, so that four numbers can be read at once."""


class Table(NamedTuple):
    """Where the pieces of averages and of values lie, and how many numbers they have."""

    tensors: tuple[tuple[int, int, int], ...]
    pieces: Tensor  # P×3


_tables: WeakKeyDictionary[nn.Module, Table] = WeakKeyDictionary()
"""By what is averaged, and for as long as that is there."""


def move(owner: nn.Module, averages: Sequence[Tensor], values: Sequence[Tensor], share: Tensor) -> None:
    """Each of the owner's averages, a ← a + share·(v − a), where v is its value; the share lies beside them."""
    table = _table_of(owner, averages, values)
    if table is None:
        changes = torch._foreach_sub(list(values), list(averages))
        torch._foreach_mul_(changes, share)
        torch._foreach_add_(list(averages), changes)
        return
    # Rounded after each operation, as PyTorch does it.
    _move[(len(table),)](table, share, PIECE=PIECE, enable_fp_fusion=False)
    torch.autograd.graph.increment_version(averages)


def _table_of(owner: nn.Module, averages: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor | None:
    """Of tensors that the kernel can take; none while a step is captured, which could not fill it."""
    device = averages[0].device
    if not kernels_run(device) or not all(map(_alike, averages, values)):
        return None
    tensors = tuple((a.data_ptr(), v.data_ptr(), a.numel()) for a, v in zip(averages, values, strict=True))
    known = _tables.get(owner)
    if known is None or known.tensors != tensors:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return None
        pieces = [
            (average + 4 * begin, value + 4 * begin, min(PIECE, count - begin))
            for average, value, count in tensors
            for begin in range(0, count, PIECE)
        ]
        known = _tables[owner] = Table(tensors, torch.tensor(pieces, device=device))
    return known.pieces


def _alike(average: Tensor, value: Tensor) -> bool:
    """Whether both have their numbers in the same places of a piece of memory without gaps."""
    return (
        average.dtype == value.dtype == torch.float32
        and average.device == value.device
        and average.shape == value.shape
        and average.stride() == value.stride()
        and torch.ops.aten.is_non_overlapping_and_dense(average)
        and average.data_ptr() % ALIGNMENT == value.data_ptr() % ALIGNMENT == 0
    )


@triton.jit
def _move(table, share, PIECE: tl.constexpr):
    row = table + tl.program_id(0) * 3
    number, count = tl.arange(0, PIECE), tl.load(row + 2)
    average = tl.multiple_of(tl.load(row).to(tl.pointer_type(tl.float32)), 16) + number
    value = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(tl.float32)), 16) + number
    factor = tl.load(share)
    if count == PIECE:  # without a mask, four numbers at a time
        tl.store(average, _moved(tl.load(average), tl.load(value), factor))
    else:
        exists = number < count
        tl.store(average, _moved(tl.load(average, exists), tl.load(value, exists), factor), exists)


@triton.jit
def _moved(average, value, share):
    return average + (value - average) * share
