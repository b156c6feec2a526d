"""Checkpoints written beside the training: the loop waits for a copy in memory, not for the disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oneway.runs import atomic
from oneway.runs import checkpoint
from oneway.runs.checkpoint.state import SKIPS, tensors_of
from oneway.common.errors import UserError
from oneway.engine.state import TrainingState


class Writer:
    """Writes one checkpoint at a time; what goes wrong is raised by the next `save`, or by `wait`."""

    def __init__(self, folder: Path, thread: ThreadPoolExecutor, about: Mapping[str, Any], log: Path) -> None:
        self.folder, self.thread, self.about, self.log = folder, thread, about, log
        self.copies: dict[str, Tensor] = {}
        self.last: int | None = None
        self.under_way: Future[None] | None = None

    def save(self, iteration: int, seconds: float, state: TrainingState) -> None:
        """Copies the state as it is now, and has it written, unless the last step was skipped."""
        self.wait()
        if iteration == self.last:
            return
        self.last = iteration
        self._copy(state)
        self.under_way = self.thread.submit(self._write, iteration, seconds)

    def wait(self) -> None:
        """Until the last checkpoint is on the disk."""
        if self.under_way is not None:
            under_way, self.under_way = self.under_way, None
            under_way.result()

    def _copy(self, state: TrainingState) -> None:
        gpus = set()
        for name, tensor in tensors_of(state).items():
            if name not in self.copies:
                self.copies[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self.copies[name].copy_(tensor.detach().contiguous(), non_blocking=True)
            gpus |= {tensor.device} if tensor.is_cuda else set()
        for device in gpus:
            torch.cuda.current_stream(device).synchronize()

    def _write(self, iteration: int, seconds: float) -> None:
        _, skipped_in_a_row = self.copies[SKIPS].tolist()
        if skipped_in_a_row:
            return  # the run may be lost by now: the checkpoint before is the one to go on from
        try:
            atomic.sync(self.log)  # a checkpoint must not know more than the log that belongs to it
            checkpoint.write(self.folder, iteration, seconds, self.copies, self.about)
        except atomic.CannotWrite as error:
            raise UserError(f"{error} Then --resume continues from the last checkpoint.") from error
        except OSError as error:
            raise atomic.cannot_write(self.folder, 0, error) from error


@contextmanager
def writer(folder: Path, about: Mapping[str, Any], log: Path) -> Iterator[Writer]:
    """A writer for the block, at whose end everything is on the disk.

    Args:
        folder: Where checkpoints are.
        about: The configuration and the hash of the split.
        log: A file that has to be on the disk before a checkpoint counts.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="checkpoint") as thread:
        it = Writer(folder, thread, about, log)
        yield it
        it.wait()
