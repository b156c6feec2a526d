"""A channels-last tensor as a matrix: a row for each pixel, a column for each channel, and how programs divide it.

Sums over all rows are made in two steps, and never in an order that could change. In the first, P programs walk through
the matrix side by side and leave one part each; in the second, the program that finishes last adds up all parts, or,
where there are many, another launch does.

Shapes: M rows (N·H·W), C channels, P parts.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803, SIM102 (what a kernel is compiled for is upper case, shapes are letters, and its ifs stand alone)

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from oneway.ops.backend import tl, triton
from oneway.ops.collective import Group

MAPPED = 4096
"""Numbers in a program's tile where each becomes another."""
REDUCED = 4096
"""Numbers that a program reads at a time where it adds up."""
PROGRAMS = 512
"""Programs that add up a matrix: about as many as a large GPU runs at once, since the slowest are waited for."""
LARGEST_WIDTH = 64
"""Channels of a tile, at most: 128 bytes of bfloat16."""
WARPS = 4
MERGED_CHANNELS = 4
MERGED_AT_ONCE = 512
"""Parts of a channel, at most, that the program which finishes last adds up: it is alone with them."""
COUNTERS = 4096
"""Columns of tiles, at most, of a matrix whose parts are added up that way."""


@dataclass(frozen=True)
class Rows:
    """The size of a matrix and of its tiles."""

    count: int  # M
    channels: int  # C
    room: int  # numbers of a tile

    @classmethod
    def of(cls, x: Tensor, room: int) -> Rows:
        """The matrix of an N×C×H×W tensor."""
        return cls(x.numel() // x.shape[1], x.shape[1], room)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and channels of a tile: powers of two."""
        width = min(LARGEST_WIDTH, triton.next_power_of_2(self.channels))
        return self.room // width, width

    @property
    def grid(self) -> tuple[int, int]:
        """A program for each tile."""
        rows, width = self.tile
        return triton.cdiv(self.count, rows), triton.cdiv(self.channels, width)

    @property
    def walk(self) -> tuple[int, int]:
        """No more programs than run at once: program p takes tiles p, p + P, p + 2P and so on."""
        tiles, columns = self.grid
        return min(tiles, max(1, PROGRAMS // columns)), columns

    @property
    def merges(self) -> bool:
        """Whether the program of the walk that finishes last adds up the parts of its channels."""
        return self.walk[0] <= MERGED_AT_ONCE and self.walk[1] <= COUNTERS

    def parts(self, device: torch.device) -> Tensor:
        """2×P×C: room for two numbers of each channel from each program of the walk."""
        return torch.empty(2, self.walk[0], self.channels, device=device)

    @property
    def size(self) -> tuple[int, int]:
        """M and C as kernels take them; the latter in units."""
        return self.count, self.channels // unit_of(self.channels)

    def constants(self) -> dict[str, int]:
        """The tile, as kernels name it, and the unit of channels."""
        rows, width = self.tile
        return {"ROWS": rows, "CHANNELS": width, "UNIT": unit_of(self.channels), "num_warps": WARPS}


def unit_of(channels: int) -> int:
    """How many channels are counted as one, so that a kernel knows that eight numbers lie in 16 bytes."""
    return 8 if channels % 8 == 0 else 1


class Sum(NamedTuple):
    """What a pass adds to the tensor that it reads, and where it keeps the sum; both in that tensor's layout."""

    addend: Tensor
    total: Tensor


def channels_last(x: Tensor) -> Tensor:
    """The tensor in the layout of the kernels; a copy only where it is in another."""
    return x.contiguous(memory_format=torch.channels_last)


def merging(parts: Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Grid and constants of a kernel that adds up parts: two versions at most, so that little is compiled."""
    _, count, channels = parts.shape
    room = 128 if count <= 128 else PROGRAMS
    return (triton.cdiv(channels, MERGED_CHANNELS),), {"PARTS": room, "CHANNELS": MERGED_CHANNELS}


_counters: dict[tuple[torch.device, int], Tensor] = {}


def counters_on(device: torch.device) -> Tensor:
    """Zeros that the launches of a stream count their programs with; who finishes last sets them back.

    Launches of one stream follow one another, so that one place will do for all; those of others have their own.
    """
    if device.type != "cuda":
        return torch.zeros(COUNTERS, dtype=torch.int32, device=device)
    place = device, torch.cuda.current_stream(device).cuda_stream
    if place in _counters:
        return _counters[place]
    fresh = torch.zeros(COUNTERS, dtype=torch.int32, device=device)
    if not torch.cuda.is_current_stream_capturing():  # else they are zeros in a replay, and not before
        _counters[place] = fresh
    return fresh


class Sums(NamedTuple):
    """Room for the sums of 2×P×C parts, and what the first step needs to make them itself, where it does."""

    parts: Tensor  # 2×P×C
    sums: Tensor  # R×2×C
    counters: Tensor
    merged: bool

    @classmethod
    def of(cls, rows: Rows, group: Group | None, device: torch.device) -> Sums:
        """One copy of the sums, or, where processes of a group add theirs, another one for that."""
        copies = 1 if group is None else 2
        sums = torch.empty(copies, 2, rows.channels, device=device)
        return cls(rows.parts(device), sums, counters_on(device), rows.merges)

    def constants(self) -> dict[str, int]:
        """How many copies the first step writes: none where it does not merge."""
        return {"COPIES": len(self.sums) if self.merged else 0}

    def finish(self, group: Group | None) -> tuple[Tensor, Tensor, int]:
        """2×C: the sums; those of all processes of a group; and how many there are."""
        if not self.merged:
            grid, constants = merging(self.parts)
            _norm_sum_parts[grid](self.parts, self.sums, *self.parts.shape[1:], COPIES=len(self.sums), **constants)
        if group is None:
            return self.sums[0], self.sums[0], 1
        group.add_up(self.sums[1])
        return self.sums[0], self.sums[1], group.size


@triton.jit(do_not_specialize=["parts_count", "C"])
def _norm_sum_parts(parts, sums, parts_count, C, COPIES: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr):
    part, channel, exists = parts_of_program(parts_count, C, PARTS, CHANNELS)
    place = parts + part * C + channel
    first, second = tl.load(place, exists, other=0), tl.load(place + parts_count * C, exists, other=0)
    total, product = tl.sum(first, axis=0, keep_dims=True), tl.sum(second, axis=0, keep_dims=True)
    _store_sums(sums, channel, total, product, C, COPIES)


@triton.jit
def store_and_sum(
    parts, sums, counters, channel, first, second, C, COPIES: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr
):
    """Writes a program's two numbers for each of its channels; the last to do so adds them all up, part by part."""
    store_parts(parts, channel, first, second, C)
    if COPIES > 0:
        if is_last(counters):
            count = tl.num_programs(0)
            total, product = tl.zeros((PARTS, CHANNELS), tl.float32), tl.zeros((PARTS, CHANNELS), tl.float32)
            for begin in range(0, count, PARTS):
                place, exists = some_parts(parts, begin, channel, count, C, PARTS)
                total += load_parts(place, exists)
                product += load_parts(place + count * C, exists)
            total, product = tl.sum(total, axis=0, keep_dims=True), tl.sum(product, axis=0, keep_dims=True)
            _store_sums(sums, channel, total, product, C, COPIES)


@triton.jit
def _store_sums(sums, channel, total, product, C, COPIES: tl.constexpr):
    for copy in tl.static_range(COPIES):
        tl.store(sums + 2 * C * copy + channel, total, channel < C)
        tl.store(sums + 2 * C * copy + C + channel, product, channel < C)


@triton.jit
def is_last(counters):
    """Whether every other program of these channels has stored its parts before: true for one of them, and once.

    All threads of a program have stored theirs before the barrier, and one thread counts behind it, which releases them
    (PTX's causality order runs through barriers). Counts of one place follow one another, each acquires what the ones
    before it have released, and no thread goes on before it knows the count: who counts last sees all parts. It is
    alone then, and sets the counter back for the next launch, which begins when this one has ended.
    """
    tl.debug_barrier()
    counter = counters + tl.program_id(1)
    last = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == tl.num_programs(0) - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit
def some_parts(parts, begin, channel, count, C, PARTS: tl.constexpr):
    """Where the first numbers of the next parts lie, and which of them exist."""
    part = begin + tl.arange(0, PARTS)[:, None]
    return parts + part * C + channel, (part < count) & (channel < C)


@triton.jit
def load_parts(place, exists):
    """From the cache that all programs share: the nearer one may hold what was there before."""
    return tl.load(place, exists, other=0, cache_modifier=".cg")


@triton.jit
def parts_of_program(parts_count, C, PARTS: tl.constexpr, CHANNELS: tl.constexpr):
    """All parts of a merging program's channels, and which of them exist."""
    part = tl.arange(0, PARTS)[:, None]
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    return part, channel, (part < parts_count) & (channel < C)


@triton.jit
def channels_of_program(CHANNELS: tl.constexpr):
    """1×CHANNELS: the columns of a program's tiles."""
    return tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[None, :]


@triton.jit
def tile_of(tile, channel, count, C, ROWS: tl.constexpr):
    """Where a tile lies in the matrix, and which of its numbers exist."""
    row = tl.arange(0, ROWS)[:, None]
    first = tl.cast(tile, tl.int64) * ROWS
    return first * C + (row * C + channel), (first + row < count) & (channel < C)


@triton.jit
def load_sum(x, addend, place, exists, SUM: tl.constexpr):
    """Numbers of a tile in single precision; those of a sum as they are once it is kept, which rounds them."""
    value = tl.load(x + place, exists, other=0).to(tl.float32)
    if SUM:
        value += tl.load(addend + place, exists, other=0).to(tl.float32)
        value = value.to(x.dtype.element_ty).to(tl.float32)
    return value


@triton.jit
def affine_of(channel, mean, variance, weight, bias, C, eps):
    """1×CHANNELS each: mean, 1/deviation, scale and shift of a norm."""
    exists = channel < C
    deviation = tl.sqrt(tl.load(variance + channel, exists, other=1).to(tl.float32) + eps)
    scale = tl.load(weight + channel, exists, other=0).to(tl.float32)
    shift = tl.load(bias + channel, exists, other=0).to(tl.float32)
    return tl.load(mean + channel, exists, other=0).to(tl.float32), 1 / deviation, scale, shift


@triton.jit
def store_parts(parts, channel, first, second, C):
    """Writes a program's two numbers for each of its channels."""
    place = parts + tl.program_id(0) * C + channel
    tl.store(place, first, channel < C)
    tl.store(place + tl.num_programs(0) * C, second, channel < C)
