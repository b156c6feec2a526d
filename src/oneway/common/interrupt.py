"""Ctrl-C and SIGTERM, asked about between iterations instead of breaking into one."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """The run was asked to stop and has saved its state; the exit status is the shell's for that signal."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(number, message)  # both, so that it survives the way back from a worker process
        self.exit_status = 128 + number
        self.message = message

    def __str__(self) -> str:
        return self.message


@contextmanager
def signals_noted() -> Iterator[Callable[[], int | None]]:
    """Within the block, the first SIGINT or SIGTERM is noted (and returned when asked); a second one acts at once."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        restore()

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    previous = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in previous:
        signal.signal(number, note)
    try:
        yield lambda: noted[0] if noted else None
    finally:
        restore()
