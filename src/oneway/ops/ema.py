"""The update of an exponential moving average (EMA) of many tensors, in one kernel where PyTorch launches three.

Each program updates a piece of one tensor; a table has the addresses of the pieces. The table stays in place, so that a
captured step can be replayed.
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
"""Numbers that a program updates."""
ALIGNMENT = 16
"""Alignment of tensors in bytes, so that four numbers can be loaded at once."""


class Table(NamedTuple):
    """Addresses of the pieces of averages and of values, and how many numbers they have."""

    tensors: tuple[tuple[int, int, int], ...]
    pieces: Tensor  # P×3


_tables: WeakKeyDictionary[nn.Module, Table] = WeakKeyDictionary()
"""The table of each teacher, for as long as it exists."""


def ema_update(owner: nn.Module, averages: Sequence[Tensor], values: Sequence[Tensor], share: Tensor) -> None:
    """Update the owner's averages in place: a ← a + share·(v − a); the share is a scalar on the same device."""
    table = _table_of(owner, averages, values)
    if table is None:
        changes = torch._foreach_sub(list(values), list(averages))
        torch._foreach_mul_(changes, share)
        torch._foreach_add_(list(averages), changes)
        return
    # Rounded after each operation, as PyTorch does it.
    _ema_update[(len(table),)](table, share, PIECE=PIECE, enable_fp_fusion=False)
    torch.autograd.graph.increment_version(averages)


def _table_of(owner: nn.Module, averages: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor | None:
    """The table of these tensors; None where the kernel cannot take them, or a capture is running and has none yet."""
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
    """Whether both tensors are dense, with the same layout, and aligned."""
    return (
        average.dtype == value.dtype == torch.float32
        and average.device == value.device
        and average.shape == value.shape
        and average.stride() == value.stride()
        and torch.ops.aten.is_non_overlapping_and_dense(average)
        and average.data_ptr() % ALIGNMENT == value.data_ptr() % ALIGNMENT == 0
    )


@triton.jit
def _ema_update(table, share, PIECE: tl.constexpr):
    row = table + tl.program_id(0) * 3
    number, count = tl.arange(0, PIECE), tl.load(row + 2)
    average = tl.multiple_of(tl.load(row).to(tl.pointer_type(tl.float32)), 16) + number
    value = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(tl.float32)), 16) + number
    factor = tl.load(share)
    if count == PIECE:  # without a mask, four numbers at a time
        tl.store(average, _lerp(tl.load(average), tl.load(value), factor))
    else:
        exists = number < count
        tl.store(average, _lerp(tl.load(average, exists), tl.load(value, exists), factor), exists)


@triton.jit
def _lerp(average, value, share):
    return average + (value - average) * share
