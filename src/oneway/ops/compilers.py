"""Compile kernels in other processes: Triton holds Python's GIL while it compiles, so that threads take turns.

A server process imports Triton once and forks a worker for each kernel that is compiled at the same time. Results go to
Triton's cache, where the caller finds them. Where that fails, kernels are compiled where they are launched.
"""

# mypy: disable-error-code="import-untyped, import-not-found, unused-ignore"

from __future__ import annotations

import inspect
import os
import pickle
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from io import RawIOBase
from itertools import count
from threading import Event, Lock, Thread
from typing import IO, Any

Pipe = IO[bytes] | RawIOBase

LONGEST = 60.0
"""Timeout for one kernel, in seconds."""


class Compilers:
    """The client of the compiler server, which ends with the process that has started it."""

    def __init__(self) -> None:
        path = os.pathsep.join(folder for folder in sys.path if folder)
        # A GPU is not needed to compile for it, and would give each child half a gigabyte.
        variables = os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # who interrupts a run at its terminal does not mean this one
        )
        self.waiting: dict[int, Event] = {}
        self.numbers, self.lock = count(), Lock()
        Thread(target=self._listen, name="compilers", daemon=True).start()

    def compile(self, function: Callable[[], object]) -> None:
        """Compile the kernel that Triton's own function would; returns when it is compiled, or has failed."""
        with suppress(Exception):
            known = inspect.getclosurevars(function).nonlocals
            source = known["src"]
            place = source.fn.fn.__module__, source.fn.fn.__qualname__
            what = place, source.signature, source.constants, source.attrs, known["target"], vars(known["options"])
            request, done = pickle.dumps(what), Event()
            with self.lock:
                number = next(self.numbers)
                self.waiting[number] = done
                _send(self._pipe(self.process.stdin), number, request)
            done.wait(LONGEST if self.process.poll() is None else 0)

    def close(self) -> None:
        """End the server; unfinished kernels are dropped."""
        self.process.kill()
        with suppress(OSError):
            self._pipe(self.process.stdin).close()
        self.process.wait()

    def _listen(self) -> None:
        with suppress(Exception):
            while True:
                number, _ = _receive(self._pipe(self.process.stdout))
                self.waiting.pop(number).set()
        for done in list(self.waiting.values()):
            done.set()

    @staticmethod
    def _pipe(pipe: Pipe | None) -> Pipe:
        assert pipe is not None
        return pipe


def serve() -> None:
    """The server: reads requests from standard input, and answers on standard output."""
    requests, answers = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=0)
    import triton.compiler  # noqa: F401

    import oneway.ops

    with suppress(Exception):
        oneway.ops.hash_compiler()
    busy: dict[Pipe, int] = {}
    idle: list[Pipe] = []
    while True:
        for ready in select.select([requests, *busy], [], [])[0]:
            if ready is requests:
                number, request = _receive(requests)
                worker = idle.pop() if idle else _worker([requests, *busy])
                _send(worker, number, request)
                busy[worker] = number
            else:
                number = busy.pop(ready)
                with suppress(EOFError, OSError):  # one that compiling has killed
                    _receive(ready)
                    idle.append(ready)
                _send(answers, number, b"")


def _worker(others: list[Pipe]) -> Pipe:
    """Fork a worker, which compiles one kernel after another; returns the pipe to it."""
    ours, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        return ours.makefile("rwb", buffering=0)
    try:
        for other in others:
            other.close()  # or the end of another worker would go unnoticed
        ours.close()
        way = theirs.makefile("rwb", buffering=0)
        while True:
            number, request = _receive(way)
            with suppress(Exception):
                _compile(*pickle.loads(request))
            _send(way, number, b"")
    finally:
        os._exit(0)


def _compile(place: tuple[str, str], signature: Any, constants: Any, attrs: Any, target: Any, options: Any) -> None:
    from triton.compiler import ASTSource, compile

    module, name = place
    compile(
        ASTSource(getattr(import_module(module), name), signature, constants, attrs), target=target, options=options
    )


def _send(pipe: Pipe, number: int, content: bytes) -> None:
    message = number.to_bytes(8, "little") + len(content).to_bytes(8, "little") + content
    pipe.write(message)
    pipe.flush()


def _receive(pipe: Pipe) -> tuple[int, bytes]:
    """Read a message; raises an EOFError at the end of the stream."""
    number, length = (int.from_bytes(_exactly(pipe, 8), "little") for _ in range(2))
    return number, _exactly(pipe, length)


def _exactly(pipe: Pipe, length: int) -> bytes:
    content = b""
    while len(content) < length:
        if not (part := pipe.read(length - len(content))):
            raise EOFError
        content += part
    return content
