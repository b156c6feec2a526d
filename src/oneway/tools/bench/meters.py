"""Two ways to count memory: what a GPU has allocated, or what autograd holds for a backward pass."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import torch
from torch import Tensor


class AllocatedMemory(nullcontext[None]):
    """Device memory in use, beyond what was in use at first."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.at_first = torch.cuda.memory_allocated(device)

    def read(self) -> tuple[int, int]:
        """Bytes at most since the last reading, and now; the allocator does not wait for the device."""
        most, now = torch.cuda.max_memory_allocated(self.device), torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return most - self.at_first, now - self.at_first


class SavedTensors(torch.autograd.graph.saved_tensors_hooks):
    """Within its block, what autograd saves for backward passes: every piece of memory once, parameters left out."""

    def __init__(self) -> None:
        super().__init__(self._pack, self._unpack)
        self.holders: Counter[int] = Counter()
        self.now = self.most = 0

    def read(self) -> tuple[int, int]:
        """Bytes held at most since the last reading, and now."""
        most, self.most = self.most, self.now
        return most, self.now

    def _pack(self, tensor: Tensor) -> Tensor | _Held:
        return tensor if isinstance(tensor, torch.nn.Parameter) else _Held(tensor, self)

    def _unpack(self, packed: Tensor | _Held) -> Tensor:
        return packed.tensor if isinstance(packed, _Held) else packed

    def hold(self, place: int, size: int) -> None:
        """Counts one more holder of a piece of memory, and the memory with the first."""
        self.holders[place] += 1
        if self.holders[place] == 1:
            self.now += size
            self.most = max(self.most, self.now)

    def release(self, place: int, size: int) -> None:
        """Counts one fewer, and the memory no more with the last."""
        self.holders[place] -= 1
        if self.holders[place] == 0:
            self.now -= size


class _Held:
    """A saved tensor; autograd drops it when its backward pass is over."""

    def __init__(self, tensor: Tensor, meter: SavedTensors) -> None:
        self.tensor, self.meter = tensor.detach(), meter  # without its history, which would hold this in turn
        storage = tensor.untyped_storage()
        self.place, self.size = storage.data_ptr(), storage.nbytes()
        meter.hold(self.place, self.size)

    def __del__(self) -> None:
        self.meter.release(self.place, self.size)
