"""Ctrl-C and SIGTERM, asked about between iterations instead of breaking into one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """The run was asked to stop and has saved its state; the exit status is the shell's for that signal."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(number, message)  # both, so that it can be pickled by a worker process
        self.exit_status = 128 + number
        self.message = message

    def __str__(self) -> str:
        return self.message


@contextmanager
def defer_signals() -> Iterator[Callable[[], int | None]]:
    """Within the block, the first SIGINT or SIGTERM waits until it is asked for; a second one acts at once.

    Python lets only the main thread handle signals. In another thread they are left to the main thread.

    Yields:
        A function that returns the number of the signal that came, or None.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        restore()

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    previous = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in previous:
        signal.signal(number, receive)
    try:
        yield lambda: received[0] if received else None
    finally:
        restore()
