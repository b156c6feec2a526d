"""A library loaded before the C library's own, so that system calls can fail for a moment: see `reliability/shim.c`."""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

SOURCE = Path(__file__).parent / "reliability" / "shim.c"


@lru_cache
def library() -> str:
    """The compiled library; nothing where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return ""
    folder = mkdtemp(prefix="preload-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    built = Path(folder) / "shim.so"
    made = subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", built, SOURCE, "-ldl"], capture_output=True)
    return str(built) if made.returncode == 0 else ""


def arm(folder: Path, turn: int, number: int) -> ctypes.CDLL:
    """From now on, calls on files below a folder are counted, and that of this turn fails; in a fork of `zygote`."""
    calls = ctypes.CDLL(None)
    calls.fault_place.restype = ctypes.c_char_p
    calls.fault_arm(str(folder).encode(), ctypes.c_long(turn), number)
    return calls
