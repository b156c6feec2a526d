"""One process at a time may train into a folder, and only into the folder that it has locked."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from oneway.common.errors import UserError
from oneway.runs.atomic import cannot_write

NAME = ".lock"
FOR_A_MOMENT = (errno.EIO, errno.ESTALE, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETIMEDOUT, errno.EINTR)
"""Why a lock may fail on a file system that has locks."""


@dataclass(frozen=True)
class Held:
    """A folder that this process has locked, whatever it is called by now."""

    path: Path
    descriptor: int
    holder: bytes
    """What the lock file says: which process it is, and a number that no other lock has."""

    def require(self) -> None:
        """Refuses to go on where the path leads to another folder than the one that was locked, or to none.

        Where the system cannot tell for the moment, the write that follows will.
        """
        try:
            here = os.stat(self.path)
            # Some network file systems number a folder anew: the lock file in it says whose it is.
            if os.path.samestat(here, os.fstat(self.descriptor)) or self._is_noted():
                return
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return
        now = self._where()
        if now is None:
            raise UserError(f"{self.path}: the folder of this run was removed while it trained; the run has stopped.")
        raise UserError(
            f"{self.path}: the folder of this run was renamed while it trained, and is now {now}. The run has stopped, "
            f"so as not to write into another folder. With --resume --out {now} it continues from its last checkpoint."
        )

    def _is_noted(self) -> bool:
        with suppress(OSError):
            return (self.path / NAME).read_bytes() == self.holder
        return False

    def _where(self) -> str | None:
        """What the folder is called now; None where it has been removed."""
        if os.fstat(self.descriptor).st_nlink == 0:
            return None
        try:
            return os.readlink(f"/proc/self/fd/{self.descriptor}")
        except OSError:  # only Linux tells
            return "elsewhere"


@contextmanager
def hold(folder: Path) -> Iterator[Held]:
    """Locks the folder for the block; where another process has locked it, a UserError names that process.

    The lock is on the folder itself, and goes with it when it is renamed; where a file system cannot lock folders, on a
    file in it. The system releases it when the process ends, in whatever way: a lock file that is still there locks
    nothing. On a file system without locks there is none.
    """
    if (folder / NAME).is_symlink():
        raise UserError(f"{folder / NAME}: a link, which is not followed. Remove it.")
    holder = f"process {os.getpid()} on {platform.node()}\n{os.urandom(8).hex()}\n".encode()
    opened: list[int] = []
    try:
        try:
            opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            _lock(opened[0])
            opened.append(_open_locked(opened[0]))
            os.ftruncate(opened[1], 0)
            os.write(opened[1], holder)
        except BlockingIOError:
            raise UserError(f"{folder}: {_holder(folder)} trains into it. Wait for it to end, or stop it.") from None
        except OSError as error:
            raise cannot_write(folder / NAME, 0, error) from error
        try:
            yield Held(folder, opened[0], holder)
        finally:
            with suppress(OSError):
                os.unlink(NAME, dir_fd=opened[0])  # of this folder, whatever it is called by now
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Locks what is open; False where the file system has no such locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno in FOR_A_MOMENT:
            raise
        return False
    return True


def _open_locked(folder: int) -> int:
    while True:
        descriptor = os.open(NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666, dir_fd=folder)
        try:
            # The process that held it may have removed the file in between: then this locks a file without a name.
            if not _lock(descriptor) or os.path.samestat(os.fstat(descriptor), os.stat(NAME, dir_fd=folder)):
                return descriptor
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _holder(folder: Path) -> str:
    with suppress(OSError):
        said = (folder / NAME).read_text(encoding="utf-8", errors="replace").strip()[:200]
        return said.partition("\n")[0] or "another process"
    return "another process"
