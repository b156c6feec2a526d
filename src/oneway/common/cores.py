"""How many threads or processes are of use at the same time."""

from __future__ import annotations

import os


def count_cores() -> int:
    """Cores this process may use, which a container or `taskset` can make fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
