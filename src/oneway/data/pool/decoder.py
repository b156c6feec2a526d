"""A family of processes that decode images of a pool, into memory that they share with the process that asks.

The first imports what is needed, once, and divides itself. A process ends when its connection does, however the one at
the other end came to its own.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from oneway.common.errors import UserError
from oneway.data.pool.decoders import END
from oneway.data.pool.reader import Reader


def main() -> None:
    """Fork a process for each connection; the arguments are numbers of open files, the shared memory first."""
    memory, *connections = map(int, sys.argv[1:])
    for ignored in (signal.SIGINT, signal.SIGTERM):  # which may be sent to all that belong to a run; it decides
        signal.signal(ignored, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        _divide(memory, [Connection(number) for number in connections])


def _divide(memory: int, connections: list[Connection]) -> None:
    children: dict[int, Connection] = {}

    def end(*_: object) -> None:
        for child in children:
            os.kill(child, signal.SIGKILL)

    reader, room = connections[0].recv()
    signal.signal(END, end)
    signal.pthread_sigmask(signal.SIG_BLOCK, {END})
    for connection in connections:
        if not (child := os.fork()):
            try:
                signal.signal(END, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {END})
                for other in connections:
                    if other is not connection:
                        other.close()
                with suppress(EOFError, OSError):
                    serve(connection, reader, mmap.mmap(memory, 0), room)
            finally:
                os._exit(0)
        children[child] = connection
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {END})
    while children:
        child, status = os.wait()
        with suppress(OSError), children.pop(child) as connection:
            if status:
                connection.send((None, os.waitstatus_to_exitcode(status)))


def serve(connection: Connection, reader: Reader, memory: mmap.mmap, room: int) -> None:
    """Decode each image that is asked for as (slot, image, choose), and answer with its slot; an EOFError at the end.

    Pixels go into the memory, in which a slot has so much room.
    """
    while True:
        slot, image, choose = connection.recv()
        outcome: Any
        try:
            part = reader.decode(image, choose)
            place = np.frombuffer(memory, np.uint8, room, slot * room)
            place[: part.pixels.size].reshape(part.pixels.shape)[:] = part.pixels
            outcome = part.size, part.box
        except UserError as error:
            outcome = error
        except Exception as error:
            error.add_note(traceback.format_exc())
            outcome = error
        connection.send((slot, outcome))
