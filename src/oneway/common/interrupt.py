"""Signals that ask a run to stop: noted when they come, and acted on between iterations."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupted(Exception):
    """The run was asked to stop and has saved its state; the exit status is the shell's for that signal."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(number, message)  # both, so that it can be pickled by a worker process
        self.exit_status = 128 + number
        self.message = message

    def __str__(self) -> str:
        return self.message


class Stopped(KeyboardInterrupt):
    """Raised by a signal other than Ctrl-C, where Ctrl-C would raise KeyboardInterrupt."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


NOTICES = (signal.SIGUSR1, signal.SIGUSR2)
"""What schedulers can send minutes before they end a job; other programs give them another meaning, by handlers."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, *NOTICES)
"""Ctrl-C, a scheduler, a terminal that is closed, processor time that is used up, and notices of an end."""

IMPATIENT = (signal.SIGINT, signal.SIGTERM)
"""Signals whose second arrival acts at once: somebody sent it on purpose, while the system repeats the others."""


@contextmanager
def defer_signals() -> Iterator[Callable[[], int | None]]:
    """Within the block, the first signal of STOPPING waits until it is asked for; a second, impatient one acts at once.

    A signal that is ignored stays so: `nohup` means it. Python lets only the main thread handle signals; in another
    thread they are left to it.

    Yields:
        A function that returns the number of the signal that came, or None.
    """

    def receive(number: int, before: dict[int, Any]) -> None:
        for other, handler in before.items():
            signal.signal(other, handler if other in IMPATIENT else signal.SIG_IGN)

    with _received_by(receive, STOPPING) as received:
        yield lambda: received[0] if received else None


@contextmanager
def stops_as_by_ctrl_c() -> Iterator[None]:
    """Within the block, the other signals of STOPPING raise `Stopped`: what tidies up after Ctrl-C does so after them.

    A signal that is ignored stays so, and in another thread they are left to the main one, as by `defer_signals`.
    """

    def receive(number: int, before: dict[int, Any]) -> None:
        for other in before.keys() - {*IMPATIENT}:
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(number)

    with _received_by(receive, [number for number in STOPPING if number != signal.SIGINT]):
        yield


@contextmanager
def _received_by(receive: Callable[[int, dict[int, Any]], None], numbers: Iterable[int]) -> Iterator[list[int]]:
    """Within the block, signals that are not ignored go to a function, with all their handlers of before.

    Yields:
        The numbers of those that have come.
    """
    received: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    handlers = {int(number): signal.getsignal(number) for number in numbers if main}
    before = {
        number: handler
        for number, handler in handlers.items()
        if handler not in (signal.SIG_IGN, None) and not (number in NOTICES and callable(handler))
    }

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        receive(number, before)

    for number in before:
        signal.signal(number, handle)
    try:
        yield received
    finally:
        for number, handler in before.items():
            # It comes again with every second, and would end a process that is about to end by itself.
            if not (number in received and number == signal.SIGXCPU):
                signal.signal(number, handler)
