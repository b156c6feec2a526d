"""Mean and variance of each channel of a batch, in one pass, and the update of the running statistics.

Shapes: N×C×H×W, which is M rows (N·H·W) of C channels; P parts.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803, N806 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from oneway.ops.backend import tl, triton
from oneway.ops.collective import Group, current
from oneway.ops.rows import (
    REDUCED,
    Rows,
    Sum,
    channels_of_program,
    load_sum,
    merging,
    parts_of_program,
    store_parts,
    tile_of,
)


class Statistics(NamedTuple):
    """The mean and variance that a norm uses."""

    mean: Tensor  # C
    variance: Tensor  # C
    of_batch: bool = False
    """Whether they are those of the normalised tensor itself, so that its gradient passes through them."""

    group: Group | None = None
    """The processes among which the batch is divided; None for one process."""


class Running(NamedTuple):
    """The running statistics of a batch norm, and their momentum."""

    mean: Tensor  # C
    variance: Tensor  # C, unbiased
    batches: Tensor  # their number so far, int64
    momentum: float


def population(layer: nn.BatchNorm2d) -> Statistics | None:
    """The running statistics of a layer in evaluation mode; None in training, where the batch's are used."""
    if layer.training or layer.running_mean is None or layer.running_var is None:
        return None
    return Statistics(layer.running_mean, layer.running_var)


def following(layer: nn.BatchNorm2d) -> Running | None:
    """The running statistics of a layer, if the batch is to update them; else None."""
    if not (layer.training and layer.track_running_stats) or layer.running_mean is None or layer.running_var is None:
        return None
    assert layer.num_batches_tracked is not None
    assert layer.momentum is not None
    return Running(layer.running_mean, layer.running_var, layer.num_batches_tracked, layer.momentum)


def batch_statistics(x: Tensor, running: Running | None = None, of_sum: Sum | None = None) -> Statistics:
    """Statistics of a channels-last N×C×H×W tensor, or of its sum with an addend, which the same pass computes.

    The running statistics are updated as in `F.batch_norm`. Where the tensor is a share of a batch, the statistics are
    those of the whole batch.
    """
    group = current()
    if group is None:
        return _own_statistics(x, running, of_sum)
    shares = torch.empty(group.size, 2, x.shape[1], device=x.device)
    _own_statistics(x, None, of_sum, shares[group.rank])
    group.fill(shares)
    mean, variance = torch.empty(2, x.shape[1], device=x.device)
    grid, constants = merging(shares.transpose(0, 1))
    arguments = (*_tracked_by(running, mean, variance), x.numel() // x.shape[1] * group.size, group.size, x.shape[1])
    _norm_merge_shares[grid](shares, mean, variance, *arguments, **constants)
    _tell_autograd(running)
    return Statistics(mean, variance, of_batch=True, group=group)


def _own_statistics(x: Tensor, running: Running | None, of_sum: Sum | None, into: Tensor | None = None) -> Statistics:
    rows = Rows.of(x, REDUCED if of_sum is None else REDUCED // 2)  # of two tensors
    parts = rows.parts(x.device)
    # What is absent is never touched, but a kernel wants a pointer.
    _norm_statistics[rows.walk](x, *(of_sum or (x, x)), parts, *rows.size, SUM=of_sum is not None, **rows.constants())

    mean, variance = torch.empty(2, rows.channels, device=x.device) if into is None else into
    grid, constants = merging(parts)
    arguments = (*_tracked_by(running, mean, variance), rows.count, *parts.shape[1:], rows.tile[0])
    _norm_merge_statistics[grid](parts, mean, variance, *arguments, **constants, num_warps=8)
    _tell_autograd(running)
    return Statistics(mean, variance, of_batch=True)


def _tracked_by(running: Running | None, mean: Tensor, variance: Tensor) -> tuple[Tensor | float, ...]:
    """Kernel arguments: the running statistics, and whether there are any; the same kernel serves both cases."""
    if running is not None:
        return *running, 1
    return mean, variance, torch.empty(1, dtype=torch.int64, device=mean.device), 0.0, 0


def _tell_autograd(running: Running | None) -> None:
    """Tell autograd that a kernel has changed the running statistics in place."""
    if running is not None:
        torch.autograd.graph.increment_version((running.mean, running.variance, running.batches))


@triton.jit(do_not_specialize=["count", "C"])
def _norm_statistics(
    x,
    addend,
    kept,
    parts,
    count,
    C,
    SUM: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    UNIT: tl.constexpr,
):
    """Each program's mean and sum of squared deviations from it."""
    C = C * UNIT
    first, programs, channel = tl.program_id(0), tl.num_programs(0), channels_of_program(CHANNELS)
    # Sums of deviations from a guess of the mean: else a large mean would cancel the digits of a small variance.
    place, exists = tile_of(first, channel, count, C, ROWS)
    sample = load_sum(x, addend, place, exists, SUM)
    guess = tl.sum(sample, axis=0, keep_dims=True) / tl.minimum(count - first * ROWS, ROWS)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    squares = tl.zeros((ROWS, CHANNELS), tl.float32)
    for tile in range(first, tl.cdiv(count, ROWS), programs):
        place, exists = tile_of(tile, channel, count, C, ROWS)
        value = load_sum(x, addend, place, exists, SUM)
        if SUM:
            tl.store(kept + place, value.to(kept.dtype.element_ty), exists)
        left = tl.where(exists, value - guess, 0)
        total += left
        squares += left * left
    mine = _rows_of(first, count, programs, ROWS).to(tl.float32)
    sums = tl.sum(total, axis=0, keep_dims=True)
    store_parts(parts, channel, guess + sums / mine, tl.sum(squares, axis=0, keep_dims=True) - sums * sums / mine, C)


@triton.jit(do_not_specialize=["tracked", "count", "parts_count", "C", "ROWS"])
def _norm_merge_statistics(
    parts,
    mean,
    variance,
    running_mean,
    running_variance,
    batches,
    momentum,
    tracked,
    count,
    parts_count,
    C,
    ROWS,
    PARTS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Merge the programs' means and squared deviations into mean and variance of the whole."""
    part, channel, exists = parts_of_program(parts_count, C, PARTS, CHANNELS)
    mine = tl.where(exists, _rows_of(part, count, parts_count, ROWS), 0).to(tl.float32)
    place = parts + part * C + channel
    inside = channel < C
    guess = tl.load(parts + channel, inside, other=0)
    means = tl.where(exists, tl.load(place, exists, other=0) - guess, 0)
    centre = tl.sum(means * mine, axis=0, keep_dims=True) / count
    apart = means - centre
    squares = tl.load(place + parts_count * C, exists, other=0) + mine * apart * apart
    spread = tl.maximum(tl.sum(squares, axis=0, keep_dims=True), 0, propagate_nan=tl.PropagateNan.ALL)
    centre += guess
    tl.store(mean + channel, centre, inside)
    tl.store(variance + channel, spread / count, inside)
    if tracked != 0:
        _move(running_mean + channel, centre, momentum, inside)
        _move(running_variance + channel, spread / (count - 1), momentum, inside)
        if tl.program_id(0) == 0:
            tl.store(batches, tl.load(batches) + 1)


@triton.jit(do_not_specialize=["tracked", "count", "C"])
def _norm_merge_shares(
    shares,
    mean,
    variance,
    running_mean,
    running_variance,
    batches,
    momentum,
    tracked,
    count,
    shares_count,
    C,
    PARTS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Merge mean and variance of the processes' shares, which are equally large, into those of the batch."""
    part, channel, exists = parts_of_program(shares_count, C, PARTS, CHANNELS)
    place, inside = shares + part * 2 * C + channel, channel < C
    guess = tl.load(shares + channel, inside, other=0)
    means = tl.where(exists, tl.load(place, exists, other=0) - guess, 0)
    centre = tl.sum(means, axis=0, keep_dims=True) / shares_count
    apart = tl.where(exists, means - centre, 0)
    spread = tl.sum(tl.load(place + C, exists, other=0) + apart * apart, axis=0, keep_dims=True) / shares_count
    centre += guess
    tl.store(mean + channel, centre, inside)
    tl.store(variance + channel, spread, inside)
    if tracked != 0:
        _move(running_mean + channel, centre, momentum, inside)
        _move(running_variance + channel, spread * count / (count - 1), momentum, inside)
        if tl.program_id(0) == 0:
            tl.store(batches, tl.load(batches) + 1)


@triton.jit
def _rows_of(program, count, programs, ROWS):
    """The number of rows that a program of the walk has read: whole tiles, except for the matrix's last."""
    tiles = tl.cdiv(count, ROWS)
    missing = tl.where((tiles - 1) % programs == program, tiles * ROWS - count, 0)
    return (tiles - program + programs - 1) // programs * ROWS - missing


@triton.jit
def _move(average, value, momentum, exists):
    old = tl.load(average, exists, other=0)
    tl.store(average, (old + momentum * (value - old)).to(average.dtype.element_ty), exists)
