"""How the processes of a run find each other: torchrun starts them, and each joins those of its own attempt."""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from oneway.common.errors import UserError
from oneway.engine.ranks import ALONE, Ranks

TIMEOUT = 600
"""Seconds after which a rendezvous or a collective operation fails. The watchdog notices sooner who is missing."""

_joined = ALONE
"""The processes that this one has joined."""


def joined() -> Ranks:
    """The processes that this one trains with; itself alone before `join`."""
    return _joined


def join(device: str, group_of_one: bool = False) -> Ranks:
    """Join the process group of torchrun, or of any launcher that sets the same environment variables.

    Args:
        device: As the user names it: NCCL where each process has a GPU of its own, Gloo everywhere else.
        group_of_one: Make a group of a single process too, to measure what communication costs.
    """
    global _joined
    if not _joined.alone or not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return _joined
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world_size == 1 and not group_of_one:
        return _joined
    local_rank, on_this_host = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    backend = "nccl" if on_this_host <= gpus else "gloo"
    if gpus:
        torch.cuda.set_device(local_rank % gpus)
    wait = timedelta(seconds=TIMEOUT)
    store, _, _ = next(dist.rendezvous("env://", rank, world_size, timeout=wait))
    rendezvous = _rendezvous(store, rank, world_size)
    own = dist.PrefixStore(rendezvous, store)
    dist.init_process_group(backend, store=own, rank=rank, world_size=world_size, timeout=wait)
    atexit.register(_shut_down)
    control: Any = dist.new_group(backend="gloo", timeout=wait)
    hosts: list[Any] = [None] * world_size
    dist.all_gather_object(hosts, platform.node(), group=control)
    _joined = Ranks(
        rank,
        world_size,
        local_rank,
        tuple(hosts),
        alone=False,
        backend=backend,
        rendezvous=rendezvous,
        _control=control,
        _store=store,
    )
    return _joined


def _rendezvous(store: Any, rank: int, world_size: int) -> str:
    """A key prefix for this attempt: the store may still hold keys of earlier ones, whose processes are dead.

    Each process writes a random token. Rank 0 publishes the list of tokens it has read; a process that finds its own
    token in the list confirms that list; when all have confirmed the same list, all are alive.
    """
    deadline, hello = time.monotonic() + TIMEOUT, os.urandom(8).hex()

    def read(key: str, default: str = "") -> str:
        return str(store.get(f"oneway/{key}").decode()) if store.check([f"oneway/{key}"]) else default

    store.set(f"oneway/hello/{rank}", hello)
    invited = ""
    while time.monotonic() < deadline:
        if rank == 0:
            heard = " ".join(read(f"hello/{other}", "?") for other in range(world_size))
            if heard != invited:
                store.set("oneway/invited", heard)
                invited = heard
        elif hello in (heard := read("invited")).split() and heard != invited:
            store.set(f"oneway/accepted/{rank}", heard)
            invited = heard
        if rank == 0 and all(read(f"accepted/{other}") == invited for other in range(1, world_size)):
            store.set("oneway/met", invited)
        if invited and read("met") == invited:
            return f"oneway/{hashlib.sha256(invited.encode()).hexdigest()[:16]}"
        time.sleep(0.05)
    raise UserError(
        f"Rendezvous timed out after {TIMEOUT} s: not all {world_size} ranks joined. Check the logs of the other ranks "
        "and MASTER_ADDR and MASTER_PORT."
    )


def _shut_down() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
