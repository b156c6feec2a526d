"""Work on several threads, whose results come in order; and how many threads or processes are of use."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

AHEAD = 64
Value = TypeVar("Value")
Result = TypeVar("Result")


def count_cores() -> int:
    """Cores this process may use, which a container or `taskset` can make fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(
    function: Callable[[Value], Result], values: Iterable[Value], workers: int | None = None, ahead: int = AHEAD
) -> Iterator[Result]:
    """What a function gives for each value, in their order; at most so many are computed ahead, which bounds memory.

    By default there are as many threads as cores this process may use: Pillow decodes outside the interpreter's lock.
    Who stops early, by an error or by Ctrl-C, does not wait for the rest.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers or count_cores()) as threads:
        try:
            for value in values:
                waiting.append(threads.submit(function, value))
                if len(waiting) >= ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
