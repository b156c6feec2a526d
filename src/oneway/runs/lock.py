"""One process at a time may train into a folder."""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oneway.common.errors import UserError
from oneway.runs.atomic import cannot_write

NAME = ".lock"


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Locks the folder for the block; where another process has locked it, a UserError names that process.

    The system releases the lock when the process ends, in whatever way: a lock file that is still there locks nothing.
    On a file system without locks there is none.
    """
    path = folder / NAME
    if path.is_symlink():
        raise UserError(f"{path}: a link, which is not followed. Remove it.")
    try:
        descriptor = _open_locked(path)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode())
    except BlockingIOError:
        holder = ""
        with suppress(OSError):
            holder = path.read_text(encoding="utf-8", errors="replace").strip()[:200]
        holder = holder or "another process"
        raise UserError(f"{folder}: {holder} trains into it. Wait for it to end, or stop it.") from None
    except OSError as error:
        raise cannot_write(path, 0, error) from error
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(path)
        os.close(descriptor)


def _open_locked(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise
        except OSError:  # this file system has no locks
            return descriptor
        # The process that held it may have removed the file in between: then this locks a file without a name.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)
