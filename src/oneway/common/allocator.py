"""Keeps freed memory in the process, for the next tensor of that size (glibc's malloc)."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # parameters of mallopt, as <malloc.h> numbers them
KEPT = {MMAP_MAX: 0, TRIM_THRESHOLD: 2**31 - 1}
USUAL = {MMAP_MAX: 65_536, TRIM_THRESHOLD: 128 * 1024}


@contextmanager
def keep_freed_memory(keep: bool = True) -> Iterator[None]:
    """Within the block, the C library gives no memory back to the system; elsewhere than in glibc, nothing changes.

    By default each large tensor is mapped anew, and the system clears all of its pages when they are first touched: a
    network that predicts large images on the CPU spends a quarter of its time there, and a small one half; one that
    trains spends a tenth.
    """
    library = ctypes.CDLL(None) if keep and sys.platform == "linux" else None
    if library is None or not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):  # another C library
        yield
        return
    _set(library, KEPT)
    try:
        yield
    finally:
        _set(library, USUAL)
        library.malloc_trim(0)


def _set(library: ctypes.CDLL, options: dict[int, int]) -> None:
    for option, value in options.items():
        library.mallopt(option, value)
