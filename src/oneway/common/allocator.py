"""Memory that a process frees stays with it, for the next tensor of that size."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # parameters of mallopt, as <malloc.h> numbers them
NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """From now on, the C library gives no memory back to the system; elsewhere than in glibc, nothing changes.

    By default each large tensor is mapped anew, and the system clears all of its pages when they are first touched: a
    network that predicts large images on the CPU spends a quarter of its time there, and a small one half.
    """
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(MMAP_MAX, 0)
    mallopt(TRIM_THRESHOLD, NEVER)
