"""Processes that train one run together: who they are, and what they do at the same time.

torchrun starts them and says in environment variables who each of them is; a process that is started without it, or as
the only one, is alone, and everything here is then as good as nothing. Batches are the global ones: each process has
its share of the draws (`draws.part`), and what a step needs of the whole batch goes through a `Group`.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from oneway.common.errors import UserError
from oneway.common.words import listed
from oneway.draws import Draws, part
from oneway.engine.alarm import Alarm, Broken
from oneway.ops import Group

MOST_SECONDS = 600
"""That a process waits for another inside an operation. `alarm` notices sooner who is missing."""

Value = TypeVar("Value")


@dataclass
class Ranks:
    """The processes of a run, and which of them this one is."""

    rank: int = 0
    of: int = 1
    local: int = 0
    """Its number among those of its computer."""

    hosts: tuple[str, ...] = (platform.node(),)
    """The computer of each process."""

    alone: bool = True
    """Whether it has nothing to exchange with anybody, also where torchrun started it as the only one."""

    backend: str = ""
    meeting: str = ""
    alarm: Alarm | None = None
    _control: Any = None  # a group on the CPU, whatever the device
    _store: Any = None
    _turns: int = 0
    _asked: tuple[Any, Tensor] | None = field(default=None, repr=False)

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes and speaks."""
        return self.rank == 0

    @property
    def group(self) -> Group | None:
        """What operations need to know."""
        return None if self.alone else Group(self.of, self.rank, self._add_up, self._fill)

    @property
    def can_capture(self) -> bool:
        """Whether a CUDA graph can hold what the processes do together."""
        return self.alone or self.backend == "nccl"

    def share(self, draws: Draws) -> Draws:
        """This process's part of a table."""
        return draws if self.of == 1 else part(draws, self.rank, self.of)

    def device(self, name: str) -> str:
        """The device of this process, where a user asks for `name`: each has a GPU of its own if there are enough."""
        if self.alone or name == "cpu" or not torch.cuda.is_available():
            return name
        if name not in ("auto", "cuda"):
            raise UserError(f"device {name}: {self.of} processes cannot share it. Use auto, cuda or cpu.")
        return f"cuda:{self.local % torch.cuda.device_count()}"

    def same(self, value: Callable[[], Value]) -> Value:
        """What the first process finds, in all of them; the others do not look."""
        found: list[Any] = [value() if self.is_first else None]
        if not self.alone:
            self._together(dist.broadcast_object_list, found, src=0, group=self._control)
        return found[0]

    def same_tensors(self, of_first: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Named tensors of the first process, in all of them."""
        own = dict(of_first()) if self.is_first else {}
        shapes = self.same(lambda: {name: (tensor.shape, tensor.dtype) for name, tensor in own.items()})
        device = "cpu" if self.backend == "gloo" else torch.device("cuda", torch.cuda.current_device())
        found: dict[str, Tensor] = {}
        for name, (shape, dtype) in shapes.items():
            tensor = (
                own[name].detach().to(device).contiguous() if own else torch.empty(shape, dtype=dtype, device=device)
            )
            self._together(dist.broadcast, tensor, src=0)
            found[name] = tensor
        return found

    def require_same(self, facts: Mapping[str, Any]) -> None:
        """Refuses processes that differ in anything, and names the first that does."""
        if self.alone:
            return
        all_facts: list[Any] = [None] * self.of
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

    def agree(self, signal: int | None, now: bool = False) -> int | None:
        """The signal that any process had received when this was last asked; with `now`, at this moment.

        The answer to the last question has had an iteration's time to arrive, so that nobody waits for it.
        """
        if self.alone:
            return signal
        answer = self._answer()
        if answer is None:
            asked = torch.tensor(signal or 0)
            work = self._together(dist.all_reduce, asked, dist.ReduceOp.MAX, group=self._control, async_op=True)
            self._asked = work, asked
            answer = self._answer() if now else None
        return answer

    def _answer(self) -> int | None:
        if self._asked is None:
            return None
        work, asked = self._asked
        self._asked = None
        self._together(work.wait)
        return int(asked) or None

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Within the block, the first process of a computer is alone; the others follow, and find what it has made."""
        if not self.alone:
            self._turns += 1
            node = os.environ.get("GROUP_RANK", self.hosts[self.rank])
            key = f"{self.meeting}/turn/{node}/{self._turns}"
            while self.local != 0 and not _needing_others(self._store.check, [key]):
                time.sleep(0.05)
            yield
            if self.local == 0:
                _needing_others(self._store.set, key, "done")
        else:
            yield

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block, a process that fails, ends or hangs ends all of them, with a message that names it."""
        if self.alone:
            yield
            return
        token = self.same(lambda: f"{self.meeting}/{os.urandom(8).hex()}")
        processes = [""] * self.of
        dist.all_gather_object(processes, f"{self.hosts[self.rank]} {os.getpid()}", group=self._control)
        names = [self.name_of(rank) for rank in range(self.of)]
        self.alarm = Alarm(self._store.clone(), token, self.rank, names, processes)
        dist.barrier(group=self._control)  # all have said that they live
        try:
            with self.alarm.armed():
                yield
        finally:
            self.alarm = None

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Within the block, the others wait for this process as long as it takes."""
        if self.alarm is None:
            yield
            return
        with self.alarm.patient():
            yield

    @contextmanager
    def expecting_progress(self) -> Iterator[None]:
        """Within the block, a process that makes none hangs."""
        if self.alarm is None:
            yield
            return
        with self.alarm.expecting_progress():
            yield

    def tick(self) -> None:
        """This process has come a step further in what it does by itself."""
        if self.alarm is not None:
            self.alarm.ticks += 1

    @property
    def in_words(self) -> str:
        """Nothing for a single process; else how many there are, on which computers."""
        hosts = list(dict.fromkeys(self.hosts))
        return f", with {self.of} processes on {listed(hosts)}" if self.of > 1 else ""

    def name_of(self, rank: int) -> str:
        """A process, in words."""
        return f"process {rank} of {self.of} on {self.hosts[rank]}"

    def _add_up(self, tensor: Tensor) -> None:
        self._together(dist.all_reduce, tensor)

    def _fill(self, rows: Tensor) -> None:
        own = rows[self.rank].view(-1)  # NCCL knows that it is there already
        self._together(dist.all_gather_into_tensor, rows.view(-1), own if self.backend == "nccl" else own.clone())

    def _together(self, call: Callable[..., Value], *arguments: Any, **options: Any) -> Value:
        """Something that all processes do: who has done less of it is waited for."""
        if self.alarm is not None:
            self.alarm.marks += 1
        return _needing_others(call, *arguments, **options)


def _needing_others(call: Callable[..., Value], *arguments: Any, **options: Any) -> Value:
    """Where one of the others has gone, who that is decides what is said."""
    try:
        return call(*arguments, **options)
    except RuntimeError as error:  # what torch.distributed raises is one
        raise Broken(str(error)) from error


ALONE = Ranks()
_joined = ALONE


def joined() -> Ranks:
    """The processes that this one has joined; itself alone before."""
    return _joined


def join(device: str, group_of_one: bool = False) -> Ranks:
    """Joins the processes that torchrun, or whoever sets its variables, has started together with this one.

    Args:
        device: As a user asks for it: NCCL joins GPUs, of which each process has its own, and Gloo everything else.
        group_of_one: Whether a single process makes a group too, for whoever measures what exchanges take.
    """
    global _joined
    if not _joined.alone or not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return _joined
    rank, of = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if of == 1 and not group_of_one:
        return _joined
    local, together = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    backend = "nccl" if together <= gpus else "gloo"
    if gpus:
        torch.cuda.set_device(local % gpus)
    wait = timedelta(seconds=MOST_SECONDS)
    store, _, _ = next(dist.rendezvous("env://", rank, of, timeout=wait))
    meeting = _meet(store, rank, of)
    own = dist.PrefixStore(meeting, store)
    dist.init_process_group(backend, store=own, rank=rank, world_size=of, timeout=wait)
    atexit.register(_part)
    control: Any = dist.new_group(backend="gloo", timeout=wait)
    hosts: list[Any] = [None] * of
    dist.all_gather_object(hosts, platform.node(), group=control)
    _joined = Ranks(
        rank, of, local, tuple(hosts), alone=False, backend=backend, meeting=meeting, _control=control, _store=store
    )
    return _joined


def _meet(store: Any, rank: int, of: int) -> str:
    """A name for this meeting of the processes: the store may remember those of earlier attempts, dead by now.

    Each says hello with a number that nobody had before. The first one invites those it has heard; who finds its own
    number in the invitation accepts it; and when all have accepted the same one, all are alive.
    """
    deadline, hello = time.monotonic() + MOST_SECONDS, os.urandom(8).hex()

    def read(key: str, default: str = "") -> str:
        return str(store.get(f"oneway/{key}").decode()) if store.check([f"oneway/{key}"]) else default

    store.set(f"oneway/hello/{rank}", hello)
    invited = ""
    while time.monotonic() < deadline:
        if rank == 0:
            heard = " ".join(read(f"hello/{other}", "?") for other in range(of))
            if heard != invited:
                store.set("oneway/invited", heard)
                invited = heard
        elif hello in (heard := read("invited")).split() and heard != invited:
            store.set(f"oneway/accepted/{rank}", heard)
            invited = heard
        if rank == 0 and all(read(f"accepted/{other}") == invited for other in range(1, of)):
            store.set("oneway/met", invited)
        if invited and read("met") == invited:
            return f"oneway/{hashlib.sha256(invited.encode()).hexdigest()[:16]}"
        time.sleep(0.05)
    raise UserError(f"Not all {of} processes have come together within {MOST_SECONDS} s. Look at what the others said.")


def _part() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
