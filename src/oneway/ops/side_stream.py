"""Computation on side streams, concurrent with the current stream: small kernels leave room on a GPU for others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from oneway.ops.backend import kernels_run
from oneway.ops.collective import current

LARGEST = 2**21
"""Largest batch, in pixels: more fill a GPU by themselves, and the memory of a side stream is not shared."""
LAG = 2
"""Deferred results that may be in flight at the same time."""

Result = TypeVar("Result")

_pending: deque[tuple[torch.cuda.Event, tuple[Tensor, ...]]] = deque()


def on_side_stream(function: Callable[[Tensor], Tensor], x: Tensor, communicates: bool = False) -> Callable[[], Tensor]:
    """Start computing a function of N×…×H×W images on a side stream; call what is returned to wait for the result.

    On a CPU, and for large batches, the function is computed at once. So it is in distributed training if the function
    `communicates`: collective operations must be issued in the same order in every process.
    """
    small = x.numel() // x.shape[1] <= LARGEST
    if not (x.is_cuda and small and kernels_run(x.device) and not (communicates and current())):
        at_once = function(x)
        return lambda: at_once
    stream = _stream_of(x.device, "side")
    stream.wait_stream(torch.cuda.current_stream(x.device))
    with torch.cuda.stream(stream):
        y = function(x)

    def wait() -> Tensor:
        # x is held until now, so that the allocator does not reuse its memory; that of y belongs to the side stream.
        torch.cuda.current_stream(x.device).wait_stream(stream)
        return y

    return wait


def defer(function: Callable[[], Result], *held: Tensor) -> Result:
    """Compute a function on another side stream; `join_deferred` must be called before the result is used.

    Args:
        function: What is computed.
        held: The tensors that it reads: held so that the allocator does not reuse their memory before the join.
    """
    here, stream = torch.cuda.current_stream(held[0].device), _stream_of(held[0].device, "deferred")
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        found = function()
        _pending.append((stream.record_event(), held))
    while len(_pending) > LAG:
        here.wait_event(_pending.popleft()[0])
    return found


def join_deferred() -> None:
    """Make the current stream wait for all deferred results."""
    while _pending:
        torch.cuda.current_stream().wait_event(_pending.popleft()[0])


def drop_deferred() -> None:
    """Forget deferred results: those of a step that failed."""
    _pending.clear()


@lru_cache
def _stream_of(device: torch.device, name: str) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
