"""Reading a data set in processes that something happens to."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import multiprocessing
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any

from data.decoded import train
from oneway.common.errors import UserError


def read_until(root: str, event: str, ending: str) -> None:
    """Reads, and is killed at the first such event, as Python's audit calls it, with a path of that ending."""

    def watch(happens: str, arguments: tuple[Any, ...]) -> None:
        if happens == event and str(arguments[0]).endswith(ending):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    train(Path(root))


def refused(root: str) -> str:
    """What is said when it cannot be read."""
    try:
        train(Path(root))
    except UserError as error:
        return str(error)
    return ""


def read_at_once(root: str, processes: int, locks: bool = True) -> list[list[Any]]:
    """What each of several processes reads, begun at the same moment; also where the file system has no locks."""
    fork = multiprocessing.get_context("fork")
    barrier, answers = fork.Barrier(processes), fork.SimpleQueue()

    def no_lock(descriptor: object, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def read() -> None:
        if not locks:
            fcntl.flock = no_lock
        barrier.wait()
        answers.put(digest(Path(root)))

    readers = [fork.Process(target=read) for _ in range(processes)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert [reader.exitcode for reader in readers] == [0] * processes
    return [answers.get() for _ in readers]


def digest(root: Path) -> list[Any]:
    """What a training set is, in a line."""
    samples = train(root)
    return [samples.content, len(samples), int(samples.pixels[:].astype(int).sum())]


def read_unprivileged(root: str) -> list[Any]:
    """What is read, or the refusal, where permissions of files count for root as well."""
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)  # version 3 of the calls, this process; no capability
    assert ctypes.CDLL(None).capset(header, none) == 0
    try:
        return digest(Path(root))
    except UserError as error:
        return [str(error)]
