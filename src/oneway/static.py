"""The static step: on a GPU, an iteration is captured once as a CUDA graph and replayed.

No shape changes between iterations. What does change, the table of draws, arrives in one buffer that stays in place, so
that a replay is the whole of an iteration's work for the CPU: one small copy and one launch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from oneway.config import Config
from oneway.data.store import Store
from oneway.draws import Draws, each_column
from oneway.step import Losses, TrainingState, runs_fused, step

WARM_UP = 3
"""Ordinary steps before the capture: libraries choose their algorithms in them, and the optimiser makes its state."""
ALIGNMENT = 8


def stepping(
    state: TrainingState, store: Store, config: Config, say: Callable[[str], None]
) -> Callable[[Draws, float], Losses]:
    """What does an iteration, given its draws and α: on a GPU the captured step, elsewhere the plain one."""
    device = store.pixels.device
    if runs_fused(config, device):
        return StaticStep(state, store, config, say)
    return lambda draws, alpha: step(state, store, draws.to(device), config, alpha)


class StaticStep:
    """`step`, replayed. Called like it; what it returns is overwritten by the next call."""

    def __init__(self, state: TrainingState, store: Store, config: Config, say: Callable[[str], None]) -> None:
        self.state, self.store, self.config, self.say = state, store, config, say
        self.ordinary_steps_left = defaultdict[float, float](lambda: WARM_UP)  # by α, which decides what runs
        self.table: _FixedTable | None = None
        self.graphs: dict[float, tuple[torch.cuda.CUDAGraph, Losses]] = {}
        self.stream = torch.cuda.Stream()

    def __call__(self, draws: Draws, alpha: float) -> Losses:
        """One iteration."""
        if self.table is None:
            self.table = _FixedTable(draws, self.store.pixels.device)
        self.table.fill(draws)
        if self.ordinary_steps_left[alpha] > 0:
            self.ordinary_steps_left[alpha] -= 1
            return self._on_side_stream(alpha)
        if alpha not in self.graphs:
            try:
                self.graphs[alpha] = self._capture(alpha)
            except RuntimeError as error:
                self.say(f"The step cannot be captured as a CUDA graph and runs slower: {str(error).splitlines()[0]}")
                self.ordinary_steps_left = defaultdict(lambda: math.inf)
                return self._on_side_stream(alpha)
        graph, losses = self.graphs[alpha]
        graph.replay()
        return losses

    def _step(self, alpha: float) -> Losses:
        assert self.table is not None
        with tried_algorithms():
            return step(self.state, self.store, self.table.draws, self.config, alpha)

    def _on_side_stream(self, alpha: float) -> Losses:
        """A capture must not find work of the default stream in its way."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            losses = self._step(alpha)
        torch.cuda.current_stream().wait_stream(self.stream)
        return losses

    def _capture(self, alpha: float) -> tuple[torch.cuda.CUDAGraph, Losses]:
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values()))[0].pool() if self.graphs else None
        with torch.cuda.graph(graph, pool=pool, stream=self.stream):
            losses = self._step(alpha)
        return graph, losses


@contextmanager
def tried_algorithms(enabled: bool = True) -> Iterator[None]:
    """Convolutions try their algorithms once: shapes stay the same for the whole run, so it is worth it."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = enabled
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class _FixedTable:
    """Draws in device memory that stays in place, filled by one copy from pinned memory."""

    def __init__(self, like: Draws, device: torch.device) -> None:
        size = sum(_bytes(column) for column in _columns(like))
        self.host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self.device = torch.empty(size, dtype=torch.uint8, device=device)
        self.copied = torch.cuda.Event(blocking=True)  # who waits for it sleeps, instead of keeping a core busy
        self.columns = list(_columns(_views(like, self.host)))
        self.draws = _views(like, self.device)

    def fill(self, draws: Draws) -> None:
        """Waits until the last copy has left the pinned memory, which lets the CPU run one iteration ahead."""
        self.copied.synchronize()
        for place, column in zip(self.columns, _columns(draws), strict=True):
            place.copy_(column)
        self.device.copy_(self.host, non_blocking=True)
        self.copied.record()


def _columns(draws: Draws) -> Iterator[Tensor]:
    found: list[Tensor] = []
    each_column(draws, lambda column: found.append(column) or column)  # type: ignore[func-returns-value]
    return iter(found)


def _bytes(column: Tensor) -> int:
    return -(-column.nbytes // ALIGNMENT) * ALIGNMENT


def _views(like: Draws, buffer: Tensor) -> Draws:
    """The columns of a table, laid out one after another in a buffer."""
    offset = 0

    def view(column: Tensor) -> Tensor:
        nonlocal offset
        part = buffer[offset : offset + column.nbytes]
        offset += _bytes(column)
        return part.view(column.dtype).view(column.shape)

    return each_column(like, view)
