"""A channels-last tensor as a matrix with a row per pixel and a column per channel, and its division into tiles.

Sums over all rows are computed in two steps, in a fixed order. In the first, P programs walk through the matrix and
write a partial sum each; in the second, a small program adds up the partial sums of a few channels.

Shapes: M rows (N·H·W), C channels, P parts.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from oneway.ops.backend import tl, triton
from oneway.ops.collective import Group

MAPPED = 4096
"""Numbers in a program's tile of an elementwise pass."""
REDUCED = 4096
"""Numbers that a program reads at a time in a reduction."""
PROGRAMS = 512
"""Programs of a reduction: about as many as a large GPU runs at once."""
LARGEST_WIDTH = 64
"""Most channels of a tile: 128 bytes of bfloat16."""
MERGED_CHANNELS = 4


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
        """A grid of no more programs than run at once: program p takes tiles p, p + P, p + 2P and so on."""
        tiles, columns = self.grid
        return min(tiles, max(1, PROGRAMS // columns)), columns

    def parts(self, device: torch.device) -> Tensor:
        """2×P×C, uninitialised: two partial sums of each channel from each program of the walk."""
        return torch.empty(2, self.walk[0], self.channels, device=device)

    @property
    def size(self) -> tuple[int, int]:
        """M and C as kernels take them, C in units."""
        return self.count, self.channels // unit_of(self.channels)

    def constants(self) -> dict[str, int]:
        """The tile, as kernels name it, and the unit of channels."""
        rows, width = self.tile
        return {"ROWS": rows, "CHANNELS": width, "UNIT": unit_of(self.channels)}


def unit_of(channels: int) -> int:
    """Channels per unit: a count in units of 8 tells the compiler that loads of 16 bytes are aligned."""
    return 8 if channels % 8 == 0 else 1


class Sum(NamedTuple):
    """The addend of a pass's input, and the memory for their sum; both in the input's layout."""

    addend: Tensor
    total: Tensor


def channels_last(x: Tensor) -> Tensor:
    """The tensor in channels-last layout; a copy only if it is in another."""
    return x.contiguous(memory_format=torch.channels_last)


def merging(parts: Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Grid and constants of a kernel that adds up partial sums; only two sizes, so that little is compiled."""
    _, count, channels = parts.shape
    room = 128 if count <= 128 else PROGRAMS
    return (triton.cdiv(channels, MERGED_CHANNELS),), {"PARTS": room, "CHANNELS": MERGED_CHANNELS}


def summed(parts: Tensor, group: Group | None) -> tuple[Tensor, Tensor, int]:
    """2×C, the sum of 2×P×C parts; its sum over the processes of a group; and the number of processes."""
    copies = 1 if group is None else 2
    sums = torch.empty(copies, 2, parts.shape[2], device=parts.device)
    grid, constants = merging(parts)
    _norm_sum_parts[grid](parts, sums, *parts.shape[1:], COPIES=copies, **constants)
    if group is None:
        return sums[0], sums[0], 1
    group.add_up(sums[1])
    return sums[0], sums[1], group.size


@triton.jit(do_not_specialize=["parts_count", "C"])
def _norm_sum_parts(parts, sums, parts_count, C, COPIES: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr):
    part, channel, exists = parts_of_program(parts_count, C, PARTS, CHANNELS)
    place = parts + part * C + channel
    first, second = tl.load(place, exists, other=0), tl.load(place + parts_count * C, exists, other=0)
    for copy in tl.static_range(COPIES):
        tl.store(sums + 2 * C * copy + channel, tl.sum(first, axis=0, keep_dims=True), channel < C)
        tl.store(sums + 2 * C * copy + C + channel, tl.sum(second, axis=0, keep_dims=True), channel < C)


@triton.jit
def parts_of_program(parts_count, C, PARTS: tl.constexpr, CHANNELS: tl.constexpr):
    """The indices of all partial sums of a merging program's channels, and which of them exist."""
    part = tl.arange(0, PARTS)[:, None]
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    return part, channel, (part < parts_count) & (channel < C)


@triton.jit
def channels_of_program(CHANNELS: tl.constexpr):
    """1×CHANNELS: the columns of a program's tiles."""
    return tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[None, :]


@triton.jit
def tile_of(tile, channel, count, C, ROWS: tl.constexpr):
    """The indices of a tile in the matrix, and which of its numbers exist."""
    row = tl.arange(0, ROWS)[:, None]
    first = tl.cast(tile, tl.int64) * ROWS
    return first * C + (row * C + channel), (first + row < count) & (channel < C)


@triton.jit
def load_sum(x, addend, place, exists, SUM: tl.constexpr):
    """Load a tile in single precision; with an addend, the sum, rounded as it will be stored."""
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
    """Write a program's two partial sums of each of its channels."""
    place = parts + tl.program_id(0) * C + channel
    tl.store(place, first, channel < C)
    tl.store(place + tl.num_programs(0) * C, second, channel < C)
