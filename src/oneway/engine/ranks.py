"""Distributed training: the processes (ranks) of a run, and their collective operations.

torchrun starts the processes and passes each its rank in environment variables. A process that is started without it,
or as the only one, is alone, and everything here is then a no-op. Batch sizes are global: each process trains on its
share of the draws (`draws.part`), and operations that need the whole batch communicate through a `Group`.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from oneway.common.errors import UserError
from oneway.common.words import listed
from oneway.draws import Draws, part
from oneway.engine.watchdog import CollectiveError, Watchdog
from oneway.ops import Group

Value = TypeVar("Value")


@dataclass
class Ranks:
    """The processes of a run, and which of them this one is."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """The rank among the processes on the same computer."""

    hosts: tuple[str, ...] = (platform.node(),)
    """The computer of each process."""

    alone: bool = True
    """Whether there is nobody to communicate with, also where torchrun started this process as the only one."""

    backend: str = ""
    rendezvous: str = ""
    """The prefix of this run's keys in the store."""

    watchdog: Watchdog | None = None
    _control: Any = None  # a group on the CPU, whatever the device
    _store: Any = None
    _turns: int = 0
    _signal_in_flight: tuple[Any, Tensor] | None = field(default=None, repr=False)

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes the run folder and prints."""
        return self.rank == 0

    @property
    def group(self) -> Group | None:
        """The collective operations that `ops` use; None for a process alone."""
        return None if self.alone else Group(self.world_size, self.rank, self._add_up, self._fill)

    @property
    def can_capture(self) -> bool:
        """Whether a CUDA graph can capture the collective operations: those of NCCL."""
        return self.alone or self.backend == "nccl"

    def share(self, draws: Draws) -> Draws:
        """This process's rows of a table of draws."""
        return draws if self.world_size == 1 else part(draws, self.rank, self.world_size)

    def device(self, name: str) -> str:
        """The device of this process, where a user asks for `name`: each has a GPU of its own if there are enough."""
        if self.alone or name == "cpu" or not torch.cuda.is_available():
            return name
        if name not in ("auto", "cuda"):
            raise UserError(f"device {name}: {self.world_size} processes cannot share it. Use auto, cuda or cpu.")
        return f"cuda:{self.local_rank % torch.cuda.device_count()}"

    def broadcast(self, function: Callable[[], Value]) -> Value:
        """Evaluate the function on rank 0 and broadcast the result."""
        found: list[Any] = [function() if self.is_first else None]
        if not self.alone:
            self._together(dist.broadcast_object_list, found, src=0, group=self._control)
        return found[0]

    def broadcast_tensors(self, function: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Evaluate the function on rank 0 and broadcast the tensors it returns, by name."""
        own = dict(function()) if self.is_first else {}
        shapes = self.broadcast(lambda: {name: (tensor.shape, tensor.dtype) for name, tensor in own.items()})
        device = "cpu" if self.backend == "gloo" else torch.device("cuda", torch.cuda.current_device())
        found: dict[str, Tensor] = {}
        for name, (shape, dtype) in shapes.items():
            tensor = (
                own[name].detach().to(device).contiguous() if own else torch.empty(shape, dtype=dtype, device=device)
            )
            self._together(dist.broadcast, tensor, src=0)
            found[name] = tensor
        return found

    def require_equal(self, facts: Mapping[str, Any]) -> None:
        """Refuse to train where a process differs from rank 0 in any of the values; the error names process and key."""
        if self.alone:
            return
        all_facts: list[Any] = [None] * self.world_size
        self._together(dist.all_gather_object, all_facts, dict(facts), group=self._control)
        for rank, others in enumerate(all_facts):
            for key in all_facts[0].keys() | others.keys():
                first, here = all_facts[0].get(key), others.get(key)
                if first != here:
                    raise UserError(
                        f"{self.name_of(rank).capitalize()} has {key} {here}, and process 0 on {self.hosts[0]} has "
                        f"{first}. Start all processes with the same command, version and data."
                    )

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes."""
        return tensor if self.group is None else self.group.sum(tensor)

    def agree_on_signal(self, signal: int | None, now: bool = False) -> int | None:
        """A signal that any of the processes has received, the same in all of them.

        The all-reduce runs asynchronously: the result is that of the previous call, so that no iteration waits for it.
        With `now`, it is that of this call.
        """
        if self.alone:
            return signal
        answer = self._finish_signal()
        if answer is None:
            asked = torch.tensor(signal or 0)
            work = self._together(dist.all_reduce, asked, dist.ReduceOp.MAX, group=self._control, async_op=True)
            self._signal_in_flight = work, asked
            answer = self._finish_signal() if now else None
        return answer

    def _finish_signal(self) -> int | None:
        if self._signal_in_flight is None:
            return None
        work, asked = self._signal_in_flight
        self._signal_in_flight = None
        self._together(work.wait)
        return int(asked) or None

    @contextmanager
    def local_rank_zero_first(self) -> Iterator[None]:
        """Run the block on local rank 0 of each computer first; the others follow and find the files it has made."""
        if self.alone:
            yield
            return
        self._turns += 1
        node = os.environ.get("GROUP_RANK", self.hosts[self.rank])
        key = f"{self.rendezvous}/turn/{node}/{self._turns}"
        while self.local_rank != 0 and not _call_collective(self._store.check, [key]):
            time.sleep(0.05)
        yield
        if self.local_rank == 0:
            _call_collective(self._store.set, key, "done")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Run the watchdog within the block: a process that fails, ends or hangs ends all, with a message naming it."""
        if self.alone:
            yield
            return
        token = self.broadcast(lambda: f"{self.rendezvous}/{os.urandom(8).hex()}")
        processes = [""] * self.world_size
        dist.all_gather_object(processes, f"{self.hosts[self.rank]} {os.getpid()}", group=self._control)
        names = [self.name_of(rank) for rank in range(self.world_size)]
        self.watchdog = Watchdog(self._store.clone(), token, self.rank, names, processes)
        dist.barrier(group=self._control)  # all have said that they live
        try:
            with self.watchdog.armed():
                yield
        finally:
            self.watchdog = None

    def pause_watchdog(self) -> AbstractContextManager[None]:
        """Within the block, this process may be without progress for any time: the others wait."""
        return nullcontext() if self.watchdog is None else self.watchdog.pause()

    def expecting_progress(self) -> AbstractContextManager[None]:
        """Within the block, a process without progress counts as hanging."""
        return nullcontext() if self.watchdog is None else self.watchdog.expecting_progress()

    def tick(self) -> None:
        """Tell the watchdog that this process has made progress by itself."""
        if self.watchdog is not None:
            self.watchdog.ticks += 1

    @property
    def in_words(self) -> str:
        """The number of processes and their computers, for a message; empty for a single process."""
        hosts = list(dict.fromkeys(self.hosts))
        return f", with {self.world_size} processes on {listed(hosts)}" if self.world_size > 1 else ""

    def name_of(self, rank: int) -> str:
        """A process as messages name it."""
        return f"process {rank} of {self.world_size} on {self.hosts[rank]}"

    def _add_up(self, tensor: Tensor) -> None:
        self._together(dist.all_reduce, tensor)

    def _fill(self, rows: Tensor) -> None:
        own = rows[self.rank].view(-1)  # NCCL gathers in place
        self._together(dist.all_gather_into_tensor, rows.view(-1), own if self.backend == "nccl" else own.clone())

    def _together(self, call: Callable[..., Value], *arguments: Any, **options: Any) -> Value:
        """Call a collective operation and count it for the watchdog: a process that has done fewer is waited for."""
        if self.watchdog is not None:
            self.watchdog.marks += 1
        return _call_collective(call, *arguments, **options)


def _call_collective(call: Callable[..., Value], *arguments: Any, **options: Any) -> Value:
    """Raise a CollectiveError where torch.distributed fails: the watchdog finds out which process is gone."""
    try:
        return call(*arguments, **options)
    except RuntimeError as error:  # what torch.distributed raises is one
        raise CollectiveError(str(error)) from error


ALONE = Ranks()
