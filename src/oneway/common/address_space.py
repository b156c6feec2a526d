"""Address space (`ulimit -v`): how much is left, whether it is enough for PyTorch, and which errors say it ran out."""

from __future__ import annotations

import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from oneway.common.errors import UserError

ENOUGH = 8 * 2**30
"""Bytes that are enough for PyTorch with all its libraries, and for small work."""

WORKING_BYTES = 2**30
"""Bytes for small work, once everything is loaded: threads alone set aside 64 MiB each."""

MARGIN = 2**27
"""Bytes below which the next small allocation may fail, in a place where a library knows no better than to abort."""

LOAD_EVERYTHING = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))  # without memory, Python itself can loop for ever
import torch, oneway.tools.train, oneway.tools.report, oneway.models.swiftnet
torch.nn.Conv2d(8, 8, 3)(torch.rand(4, 8, 128, 128)).sum().backward()
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmPeak")))
"""

OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "could not create a primitive",
    "failed to map segment",
)
"""How Python, PyTorch and the libraries below them say, in lower case, that there is no memory."""

OUT_OF_THREADS = ("can't start new thread", "resource temporarily unavailable")
"""The same for a thread or a process that cannot be started, for want of memory or because there are too many."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left."""
    phrases = OUT_OF_MEMORY if limit() is None else (*OUT_OF_MEMORY, *OUT_OF_THREADS)
    return isinstance(error, MemoryError) or _says(error, phrases)


def is_out_of_threads(error: BaseException) -> bool:
    """Whether an error says that no thread or process can be started, and address space is not what it lacks."""
    return limit() is None and _says(error, OUT_OF_THREADS)


def _says(error: BaseException, phrases: tuple[str, ...]) -> bool:
    known = isinstance(error, RuntimeError | ImportError | OSError)
    return known and any(words in str(error).lower() for words in phrases)


def limit() -> int | None:
    """Bytes that this process may address; None without a limit."""
    found = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if found == resource.RLIM_INFINITY else found


def left() -> int | None:
    """Bytes that this process may still address; None without a limit, or where the system does not tell."""
    most = limit()
    if most is not None:
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            return max(most - pages * resource.getpagesize(), 0)
    return None


def require_margin() -> None:
    """Raise a MemoryError while there still is memory for a message."""
    free = left()
    if free is not None and free < MARGIN:
        raise MemoryError(f"{free / 2**20:.0f} MiB of address space are left")


def require_address_space() -> None:
    """Refuse a limit under which PyTorch cannot be loaded and used: it would abort without a word.

    Where the limit is narrow, another process tries it first.
    """
    most = limit()
    if most is None or most >= ENOUGH or not Path("/proc/self/status").exists():
        return
    command = [sys.executable, "-P", "-c", LOAD_EVERYTHING]
    found = ""
    with suppress(subprocess.SubprocessError):
        found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.strip()
    needed = 1024 * int(found) + WORKING_BYTES if found.isdecimal() else None
    if needed is None or needed > most:
        need = "more than that" if needed is None else f"{needed / 2**20:,.0f} MiB"
        raise UserError(
            f"This process may address {most / 2**20:,.0f} MiB of memory, and PyTorch with its libraries needs {need}, "
            "most of which is never touched. Raise or remove the limit (`ulimit -v unlimited`; in a batch system, "
            "that of virtual memory)."
        )
