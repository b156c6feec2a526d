"""Checkpoints written by a thread of their own: training waits for a copy in memory, not for the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oneway.common.errors import UserError
from oneway.engine.state import TrainingState
from oneway.runs import atomic
from oneway.runs.checkpoint.files import write
from oneway.runs.checkpoint.state import SKIPS, tensors_of


class Writer:
    """Writes one checkpoint at a time; an error is raised by the next `save`, or by `wait`."""

    def __init__(self, write: Callable[[int, float, Mapping[str, Tensor]], None], thread: ThreadPoolExecutor) -> None:
        self.write, self.thread = write, thread
        self.copies: dict[str, Tensor] = {}
        self.last: int | None = None
        self.pending: Future[None] | None = None

    def save(self, iteration: int, seconds: float, state: TrainingState) -> None:
        """Copies the state as it is now, and has the copy written, unless the last step was skipped."""
        self.wait()
        if iteration == self.last:
            return
        first, self.last = self.last is None, iteration
        self._copy(state)
        self.pending = self.thread.submit(self._write, iteration, seconds)
        if first:  # from then on, what is logged says that there is a checkpoint: see `continuation.restore`
            self.wait()

    def wait(self) -> None:
        """Returns when the last checkpoint is on the disk."""
        if self.pending is not None:
            pending, self.pending = self.pending, None
            pending.result()

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
            return  # the run may have diverged: it is to be resumed from the checkpoint before
        self.write(iteration, seconds, self.copies)


@contextmanager
def open_writer(
    folder: Path,
    about: Mapping[str, Any],
    log: Path,
    notes: Mapping[str, Any] | None = None,
    require: Callable[[], None] = lambda: None,
) -> Iterator[Writer]:
    """A writer for the block; at its end, everything is on the disk.

    Args:
        folder: Where checkpoints are.
        about: The configuration and the hash of the split.
        log: A file that must be on the disk before a checkpoint is.
        notes: What is kept beside the tensors.
        require: Raises where the folder is no longer ours to write to.
    """

    def write_checkpoint(iteration: int, seconds: float, content: Mapping[str, Tensor]) -> None:
        try:
            require()
            atomic.sync(log)  # or a power cut could leave a checkpoint ahead of its log
            write(folder, iteration, seconds, content, about, notes, require)
        except atomic.CannotWrite as error:
            require()  # the folder may have gone in between: that is the reason then
            raise UserError(f"{error} Then --resume continues from the last checkpoint.") from error
        except OSError as error:
            require()
            raise atomic.cannot_write(folder, 0, error) from error

    with ThreadPoolExecutor(1, thread_name_prefix="checkpoint") as thread:
        writer = Writer(write_checkpoint, thread)
        yield writer
        writer.wait()
