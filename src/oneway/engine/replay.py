"""Functions of one tensor as CUDA graphs: captured once for a shape, then replayed with a copy and a launch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock

import numpy as np
import torch
from torch import Tensor

MOST_BYTES = 2**25
"""Of inputs that a function is captured for, one of each shape: graphs keep activations, tens of times as much."""

Function = Callable[[Tensor], tuple[Tensor, ...]]


def on(device: torch.device) -> AbstractContextManager[object]:
    """Within the block, a GPU is the current one of this thread: to that go streams, graphs and Triton's kernels."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class CapturedCall:
    """A function of one tensor as a CUDA graph, for one shape; the next call overwrites the results.

    Tensors that change between calls, such as weights, must be changed in place. Inputs that lie on the CPU, as `like`
    does then, pass through pinned memory: a call may only be made when the last one's results have been seen.
    """

    def __init__(self, function: Function, like: Tensor, device: torch.device | None = None) -> None:
        self.input, stream = like.to(device, copy=True), torch.cuda.Stream()
        self.staging = torch.empty_like(like, pin_memory=True) if like.device.type == "cpu" else None
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            function(self.input)  # libraries choose their algorithms, and kernels are compiled
        self.graph = torch.cuda.CUDAGraph()
        # Other threads may ask the device something meanwhile.
        with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            self.results = function(self.input)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """Call with a tensor of that shape, or with fewer rows: the remaining rows keep the last call's values."""
        if self.staging is not None:
            staged = self.staging[: len(x)]
            np.copyto(staged.numpy(), x.numpy())  # by this thread: PyTorch would keep all cores busy with it
            x = staged
        self.input[: len(x)].copy_(x, non_blocking=True)
        self.graph.replay()
        return tuple(result[: len(x)] for result in self.results)


class ReplayedFunction:
    """A function of one tensor, and of how, that is captured on a GPU for each shape that comes a second time.

    Eagerly, it launches its kernels one by one and asks for Python's lock at each; beside threads that decode and
    write images, that takes far longer than the kernels do.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], device: torch.device) -> None:
        self.function, self.device = function, device
        self.captures = device.type == "cuda"
        self.seen: set[Hashable] = set()
        self.calls: dict[Hashable, CapturedCall] = {}
        self.lock = Lock()

    def __call__(self, x: Tensor, *how: Hashable) -> tuple[Tensor, ...]:
        """The results, on the CPU, for a tensor that may lie there too; threads take turns."""
        with on(self.device):
            return self._replayed_or_eagerly(x, how)

    def _replayed_or_eagerly(self, x: Tensor, how: tuple[Hashable, ...]) -> tuple[Tensor, ...]:
        if not self.captures:
            return self._eagerly(x, how)
        with self.lock:
            self._capture_on_second_sight(x, how)
            if (call := self.calls.get((x.shape, how))) is not None:
                return _on_cpu(call(x))
            try:
                return self._eagerly(x, how)
            except torch.OutOfMemoryError:
                if not self.calls:
                    raise
                self._give_up()
        return self._eagerly(x, how)

    def _eagerly(self, x: Tensor, how: tuple[Hashable, ...]) -> tuple[Tensor, ...]:
        return _on_cpu(self.function(x.to(self.device), *how))

    def _capture_on_second_sight(self, x: Tensor, how: tuple[Hashable, ...]) -> None:
        case, captured = (x.shape, how), sum(call.input.nbytes for call in self.calls.values())
        if self.captures and case in self.seen and case not in self.calls and captured + x.nbytes <= MOST_BYTES:
            try:
                self.calls[case] = CapturedCall(lambda given: self.function(given, *how), x, self.device)
            except RuntimeError:  # no memory to spare, or a network that cannot be captured
                self._give_up()
        self.seen.add(case)

    def _give_up(self) -> None:
        """Go on eagerly, with the memory of the graphs."""
        self.captures = False
        self.calls.clear()
        torch.cuda.empty_cache()


def _on_cpu(results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(result.cpu() for result in results)
