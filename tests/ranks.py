"""Several processes that compute a step together, in forks of this one, over Gloo."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Any

import torch

from oneway.engine.rendezvous import join


def free_port() -> int:
    """One that nobody listens to at the moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def in_ranks(of: int, function: Callable[..., Any], *arguments: Any, seconds: float = 120) -> list[Any]:
    """What a function of the `Ranks` returns in each of so many processes; of one that ended before, what it said."""
    context = multiprocessing.get_context("fork")
    port, pipes, processes = free_port(), [], []
    for rank in range(of):
        receiver, sender = context.Pipe(duplex=False)
        said = TemporaryFile()  # noqa: SIM115 (read when the process has ended)
        process = context.Process(target=_run, args=(sender, said, port, rank, of, function, arguments), daemon=True)
        process.start()
        sender.close()
        pipes.append((receiver, said))
        processes.append(process)
    found = []
    try:
        for receiver, said in pipes:
            assert receiver.poll(seconds), "a process does not answer"
            try:
                error, value = receiver.recv()
            except EOFError:
                said.seek(0)
                error, value = None, said.read().decode()
            assert error is None, error
            found.append(value)
    finally:
        for process in processes:
            process.join(1)
            process.kill()
    return found


def _run(
    sender: Any, said: Any, port: int, rank: int, of: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    os.dup2(said.fileno(), 2)
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(of), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(of)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        sender.send((None, function(join("cpu"), *arguments)))
    except BaseException:
        sender.send((traceback.format_exc(), None))
    sender.close()
    os._exit(0)
