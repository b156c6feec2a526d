"""Write checkpoints in a background thread: training waits for a copy in memory, not for the disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from oneway.common.errors import UserError
from oneway.engine.state import TrainingState
from oneway.runs import atomic
from oneway.runs.checkpoint.files import FORMAT, write
from oneway.runs.checkpoint.state import SKIPS, tensors_of
from oneway.runs.checkpoint.tensors import Packed


class Writer:
    """Writes one checkpoint at a time; an error is raised by the next `save`, by `wait`, or at the end of the block."""

    def __init__(
        self,
        folder: Path,
        about: Mapping[str, Any],
        log: Path,
        notes: Mapping[str, Any] | None = None,
        require: Callable[[], None] = lambda: None,
    ) -> None:
        """A writer for a `with` block.

        Args:
            folder: The folder of checkpoints.
            about: The configuration and the hash of the split.
            log: A file that must be on the disk before a checkpoint is.
            notes: Further metadata of the tensors, for `read_notes`.
            require: Raises if the folder is no longer ours to write to.
        """
        self.folder, self.about, self.log, self.require = folder, about, log, require
        self.header = {"format": FORMAT, **(notes or {})}
        self.copies = Packed({}, self.header)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.last: int | None = None
        self.pending: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self.thread.shutdown()

    def save(self, iteration: int, seconds: float, state: TrainingState) -> None:
        """Copy the state and write the copy in the background, unless the last step was skipped."""
        self.wait()
        if iteration == self.last:
            return
        first, self.last = self.last is None, iteration
        self._copy(state)
        self.pending = self.thread.submit(self._write, iteration, seconds)
        if first:  # from then on, what is logged says that there is a checkpoint: see `continuation.restore`
            self.wait()

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk."""
        if self.pending is not None:
            pending, self.pending = self.pending, None
            pending.result()

    def _copy(self, state: TrainingState) -> None:
        content = tensors_of(state)
        gpus = {tensor.device for tensor in content.values() if tensor.is_cuda}
        if content.keys() != self.copies.keys():
            self.copies = Packed(content, self.header, pinned=bool(gpus))
        for name, tensor in content.items():
            self.copies[name].copy_(tensor.detach().contiguous(), non_blocking=True)
        for device in gpus:
            torch.cuda.current_stream(device).synchronize()

    def _write(self, iteration: int, seconds: float) -> None:
        _, skipped_in_a_row = self.copies[SKIPS].tolist()
        if skipped_in_a_row:
            return  # the run may have diverged: it is to be resumed from the checkpoint before
        try:
            self.require()
            atomic.sync(self.log)  # or a power cut could leave a checkpoint ahead of its log
            write(self.folder, iteration, seconds, self.copies, self.about, self.require)
        except atomic.CannotWrite as error:
            self.require()  # the folder may have gone in between: that is the reason then
            raise UserError(f"{error} Then --resume continues from the last checkpoint.") from error
        except OSError as error:
            self.require()
            raise atomic.cannot_write(self.folder, 0, error) from error
