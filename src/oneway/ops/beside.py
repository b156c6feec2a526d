"""Work on a second stream, beside what follows on the current one: small kernels leave room on a GPU for others."""

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
"""Pixels of a batch, at most: more fill a GPU by themselves, and a second stream has memory of its own."""
LAG = 2
"""Results that may be under way `aside` at the same time."""

Result = TypeVar("Result")

_pending: deque[tuple[torch.cuda.Event, tuple[Tensor, ...]]] = deque()


def beside(function: Callable[[Tensor], Tensor], x: Tensor, communicates: bool = False) -> Callable[[], Tensor]:
    """Begins to compute a function of N×…×H×W images; what is returned waits for its result, and has to be called.

    Without a second stream, the result is there at once. So it is where processes compute together and the function
    `communicates`: collective operations must be issued in the same order in every process.
    """
    small = x.numel() // x.shape[1] <= LARGEST
    if not (x.is_cuda and small and kernels_run(x.device) and not (communicates and current())):
        at_once = function(x)
        return lambda: at_once
    stream = _stream_of(x.device, "beside")
    stream.wait_stream(torch.cuda.current_stream(x.device))
    with torch.cuda.stream(stream):
        y = function(x)

    def wait() -> Tensor:
        # Until now x is held, so that nobody else is given its memory; that of y goes back to the second stream.
        torch.cuda.current_stream(x.device).wait_stream(stream)
        return y

    return wait


def aside(function: Callable[[], Result], *held: Tensor) -> Result:
    """Computes a function on a third stream, for whoever calls `wait_for_others` before the result is used.

    Args:
        function: What is computed.
        held: What it reads: memory that nobody else must be given until it has been waited for.
    """
    here, stream = torch.cuda.current_stream(held[0].device), _stream_of(held[0].device, "aside")
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        found = function()
        _pending.append((stream.record_event(), held))
    while len(_pending) > LAG:
        here.wait_event(_pending.popleft()[0])
    return found


def wait_for_others() -> None:
    """The current stream goes on when all that was begun `aside` is there."""
    while _pending:
        torch.cuda.current_stream().wait_event(_pending.popleft()[0])


def forget_others() -> None:
    """What was begun `aside` is of no use any more."""
    _pending.clear()


@lru_cache
def _stream_of(device: torch.device, name: str) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
