"""Clocks and memory counters, for a GPU and for a CPU."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

import torch

MIB = 2**20


def milliseconds(call: Callable[[], object], device: torch.device, repetitions: int = 3) -> float:
    """Milliseconds of a call by the device's own clock, with calls following one another as they do in a loop."""
    calls = _calls(device)
    return median(_elapsed(call, device, calls) / calls for _ in range(repetitions))


def milliseconds_apart(call: Callable[[], object], device: torch.device) -> float:
    """Milliseconds of a call by the wall clock, where each has ended before the next begins."""
    durations = []
    for _ in range(3 * _calls(device)):
        began = time.perf_counter()
        call()
        synchronise(device)
        durations.append(1000 * (time.perf_counter() - began))
    return median(durations)


def _calls(device: torch.device) -> int:
    """The number of calls: enough for a steady median on a GPU; on a CPU, enough to show that it runs."""
    return 10 if device.type == "cuda" else 1


def _elapsed(call: Callable[[], object], device: torch.device, calls: int) -> float:
    if device.type != "cuda":
        began = time.perf_counter()
        for _ in range(calls):
            call()
        return 1000 * (time.perf_counter() - began)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def synchronise(device: torch.device) -> None:
    """Wait for the device; a CPU has nothing to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    """Free the memory that earlier measurements have left, so that the next starts like the first."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


@contextmanager
def tf32_allowed(device: torch.device) -> Iterator[None]:
    """Within the block, matrix products use TF32, as convolutions do anyway: a fair baseline."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class Rates(NamedTuple):
    """The most that the device can do, measured and not promised."""

    flops: float  # per second, in matrix products
    bytes: float  # per second, read and written


def rates(device: torch.device) -> Rates:
    """Measure the rates of a large matrix product (bfloat16 on a GPU), and of copying more than any cache holds."""
    on_gpu = device.type == "cuda"
    side, room = (8192, 2**30) if on_gpu else (512, 2**25)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    product = torch.empty_like(left)
    source = torch.zeros(room, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    for _ in range(3):
        torch.mm(left, right, out=product)
        target.copy_(source)
    return Rates(
        flops=2 * side**3 / (milliseconds(lambda: torch.mm(left, right, out=product), device, 5) / 1000),
        bytes=2 * room / (milliseconds(lambda: target.copy_(source), device, 5) / 1000),
    )
