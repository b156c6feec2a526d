"""The captured step: on a GPU, an iteration is recorded once as a CUDA graph and replayed.

No shape changes between iterations. The table of draws does change: it is copied into a buffer that stays in place. So
an iteration costs the CPU one small copy and one launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import RLock
from typing import Protocol

import torch
from torch import Tensor

from oneway.common.words import first_line
from oneway.config import Config
from oneway.draws import Draws, columns_of, each_column, on_device
from oneway.engine.ranks import ALONE, Ranks
from oneway.engine.start import accelerated
from oneway.engine.state import TrainingState
from oneway.engine.step import Measured, step
from oneway.engine.store import Store
from oneway.engine.warm import compile_kernels, cudnn_autotune, should_autotune
from oneway.methods import METHODS
from oneway.ops import references, sharing_batches

WARM_UP = 3
"""Steps before the capture, in which libraries choose algorithms and the optimiser allocates its state."""
ALIGNMENT = 8


_GPU = RLock()


@contextmanager
def one_training_on_gpu(device: torch.device) -> Iterator[None]:
    """Within the block, no other thread of this process is in one for a GPU: threads take turns.

    Side streams, compiler processes and what a capture forbids are shared by all threads. Two that train at the same
    time would not wait for each other's deferred gradients, and break each other's captures.
    """
    with _GPU if device.type == "cuda" else nullcontext():
        yield


class Advance(Protocol):
    """A function that does one iteration."""

    def __call__(self, draws: Draws, alpha: float, warm_up: float = 0.0, progress: float = 0.0) -> Measured:
        """Do an iteration, given its draws, α, the least weight of the student in the EMA, and what share is done."""


def choose_step(
    state: TrainingState,
    store: Store,
    config: Config,
    say: Callable[[str], None],
    ranks: Ranks = ALONE,
    iterations: float = math.inf,
) -> Advance:
    """Choose the function that does an iteration: on a GPU the captured step, elsewhere the plain one."""
    device = store.pixels.device
    run: Callable[[Draws, bool], Measured]
    if accelerated(config, device) and device.type == "cuda":
        run = CapturedStep(state, store, config, say, ranks, iterations)
    else:

        def run(draws: Draws, consistent: bool) -> Measured:
            with references(config.train.engine == "plain"), sharing_batches(ranks.group):
                return step(state, store, on_device(draws, device), config, consistent)

    last: tuple[float, float] | None = None

    def advance(draws: Draws, alpha: float, warm_up: float = 0.0, progress: float = 0.0) -> Measured:
        nonlocal last
        state.progress.fill_(progress)
        if (alpha, warm_up) != last:
            state.alpha.fill_(alpha)
            state.warm_up.fill_(warm_up)
            last = alpha, warm_up
        return run(draws, is_consistent(config, alpha))

    return advance


def is_consistent(config: Config, alpha: float) -> bool:
    """Whether unlabelled images take part: where α > 0; in a run that has α = 0, where there is an entropy loss."""
    only_entropy = METHODS[config.method].entropy and config.train.entropy > 0 and config.train.alpha == 0
    return alpha > 0 or only_entropy


class CapturedStep:
    """`step`, captured and replayed. Called like it; what it returns is overwritten by the next call."""

    def __init__(
        self,
        state: TrainingState,
        store: Store,
        config: Config,
        say: Callable[[str], None],
        ranks: Ranks = ALONE,
        iterations: float = math.inf,
    ) -> None:
        self.state, self.store, self.config, self.say, self.ranks = state, store, config, say, ranks
        # Iterations with and without unlabelled images are two graphs, each with a warm-up of its own.
        self.ordinary_steps_left: dict[bool, float] = dict.fromkeys(
            (True, False), WARM_UP if self.ranks.can_capture else math.inf
        )
        self.table: FixedTable | None = None
        self.graphs: dict[bool, tuple[torch.cuda.CUDAGraph, Measured]] = {}
        self.stream = torch.cuda.Stream()
        self.autotune = should_autotune(state.student, config, iterations)

    def __call__(self, draws: Draws, consistent: bool) -> Measured:
        """One iteration."""
        if self.table is None:
            self.table = FixedTable(draws, self.store.pixels.device)
        self.table.fill(draws)
        if self.ordinary_steps_left[consistent] > 0:
            if self.ranks.alone and self.ordinary_steps_left[consistent] == WARM_UP:
                self._compile(consistent)
            self.ordinary_steps_left[consistent] -= 1
            return self._on_side_stream(consistent)
        if consistent not in self.graphs:
            try:
                self.graphs[consistent] = self._capture(consistent)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self.say(f"The step cannot be captured as a CUDA graph and runs slower: {first_line(error)}")
                self.ordinary_steps_left = dict.fromkeys((True, False), math.inf)
                return self._on_side_stream(consistent)
        graph, measured = self.graphs[consistent]
        graph.replay()
        return measured

    def _step(self, consistent: bool, state: TrainingState) -> Measured:
        assert self.table is not None
        with cudnn_autotune(self.autotune), sharing_batches(self.ranks.group):
            return step(state, self.store, self.table.draws, self.config, consistent)

    def _compile(self, consistent: bool) -> None:
        """Compile the kernels on the stream of the steps, so that these reuse its memory."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            step, kind = partial(self._step, consistent), "" if consistent else "supervised"
            compile_kernels(self.state, step, self.config, self.store.pixels.device, kind)

    def _on_side_stream(self, consistent: bool) -> Measured:
        """Run a step on the capture's stream: pending work on the default stream would break the capture."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            measured = self._step(consistent, self.state)
        torch.cuda.current_stream().wait_stream(self.stream)
        return measured

    def _capture(self, consistent: bool) -> tuple[torch.cuda.CUDAGraph, Measured]:
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values()))[0].pool() if self.graphs else None
        # Other threads, such as NCCL's, may ask the device something while this one captures.
        mode = "global" if self.ranks.alone else "thread_local"
        with torch.cuda.graph(graph, pool=pool, stream=self.stream, capture_error_mode=mode):
            measured = self._step(consistent, self.state)
        return graph, measured


class FixedTable:
    """Draws in device memory that stays in place, filled by one copy from pinned memory."""

    def __init__(self, like: Draws, device: torch.device) -> None:
        size = sum(map(_bytes, columns_of(like)))
        on_gpu = device.type == "cuda"
        self.host = torch.empty(size, dtype=torch.uint8, pin_memory=on_gpu)
        self.device = torch.empty(size, dtype=torch.uint8, device=device)
        # Blocking: waiting for it sleeps, and does not keep a core busy.
        self.copied = torch.cuda.Event(blocking=True) if on_gpu else None
        self.columns = list(columns_of(_views(like, self.host)))
        self.draws = _views(like, self.device)

    def fill(self, draws: Draws) -> None:
        """Fill the table; waits for the previous copy from pinned memory, so the CPU is at most one iteration ahead."""
        if self.copied is not None:
            self.copied.synchronize()
        for place, column in zip(self.columns, columns_of(draws), strict=True):
            place.copy_(column)
        self.device.copy_(self.host, non_blocking=True)
        if self.copied is not None:
            self.copied.record()


def _bytes(column: Tensor) -> int:
    return -(-column.nbytes // ALIGNMENT) * ALIGNMENT


def _views(like: Draws, buffer: Tensor) -> Draws:
    """A table whose columns are views of a buffer, one after another."""
    offset = 0

    def view(column: Tensor) -> Tensor:
        nonlocal offset
        part = buffer[offset : offset + column.nbytes]
        offset += _bytes(column)
        return part.view(column.dtype).view(column.shape)

    return each_column(like, view)
