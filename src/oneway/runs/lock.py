"""The lock of a folder of a run or of predictions: one process at a time may write to it.

System locks do not always work across computers. So the lock file names the process and the computer that hold it, and
is touched every few seconds: a lock file of another computer that is no longer touched is ignored.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.links import open_descriptor
from oneway.runs.atomic import cannot_write

NAME = ".lock"
SECONDS_BETWEEN_TOUCHES = 5.0
STALE_AFTER = 20.0
"""Seconds without a touch after which another computer's lock file counts as left behind."""

CAREFULLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""How lock files are opened to be read: a stranger's folder may have a link or a pipe there."""

TRANSIENT = (errno.EIO, errno.ESTALE, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETIMEDOUT, errno.EINTR)
"""Transient errors of locking on file systems that have locks."""


@dataclass(frozen=True)
class Held:
    """A folder that this process has locked; it may have been renamed since."""

    path: Path
    descriptor: int
    holder: bytes
    """The content of the lock file: the process, and a random number that identifies the lock."""

    def require(self) -> None:
        """Refuse to go on if the path is no longer the locked folder.

        If the system cannot tell at the moment, nothing is raised: the next write will fail if it must.
        """
        try:
            here = os.stat(self.path)
            # Some network file systems number a folder anew: the lock file in it says whose it is.
            noted = _read(self.path)
            if os.path.samestat(here, os.fstat(self.descriptor)) or noted == self.holder:
                if noted not in (b"", self.holder):  # after this computer slept for a while
                    raise UserError(
                        f"{self.path}: {_first_line(noted)} has taken this run over, since this process gave no sign "
                        "of life for a while; this one has stopped."
                    )
                return
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return
        if os.fstat(self.descriptor).st_nlink == 0:
            raise UserError(f"{self.path}: the folder of this run was removed while it trained; the run has stopped.")
        stopped = "The run has stopped, so as not to write into another folder."
        if (now := self._where()) is None:
            raise UserError(
                f"{self.path}: the folder of this run is no longer there: it was renamed, or its disk was unmounted or "
                f"covered by another one, while it trained. {stopped} --resume continues it from its last checkpoint, "
                "once the folder is there again."
            )
        raise UserError(
            f"{self.path}: the folder of this run was renamed while it trained, and is now {now}. {stopped} "
            f"With --resume --out {now} it continues from its last checkpoint."
        )

    def _where(self) -> str | None:
        """The folder's current path; None where the system does not tell, or it has none."""
        with suppress(OSError):
            now = os.readlink(f"/proc/self/fd/{self.descriptor}")  # only Linux tells
            if os.path.samestat(os.stat(now), os.fstat(self.descriptor)):
                return now
        return None


@contextmanager
def hold(folder: Path) -> Iterator[Held]:
    """Lock the folder for the block; if another process has locked it, a UserError names that process.

    The lock is on the folder itself, so that it survives renaming; where a file system cannot lock folders, on a file
    in it. The system releases it when the process ends, in whatever way: a lock file that is left behind locks nothing.
    If it names another computer, or the file system has no locks, it is watched for a while for touches.
    """
    if (folder / NAME).is_symlink():
        raise UserError(f"{folder / NAME}: a link, which is not followed. Remove it.")
    holder = f"process {os.getpid()} on {platform.node()}\n{os.urandom(8).hex()}\n".encode()
    opened: list[int] = []
    try:
        try:
            opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            system_locks = _lock(opened[0])
            descriptor, locked = _open_locked(opened[0])
            opened.append(descriptor)
            _refuse_live_holder(folder, system_locks or locked)
            os.ftruncate(opened[1], 0)
            os.write(opened[1], holder)
        except BlockingIOError:
            raise _in_use(folder) from None
        except OSError as error:
            raise cannot_write(folder / NAME, 0, error) from error
        try:
            with _touching(opened[1]):
                yield Held(folder, opened[0], holder)
        finally:
            with suppress(OSError):
                os.unlink(NAME, dir_fd=opened[0])  # of this folder, whatever it is called by now
    finally:
        for descriptor in opened:
            os.close(descriptor)


def is_touched(folder: Path) -> bool:
    """Whether a process seems to write to the folder: its lock file is a few seconds old. Nothing is locked."""
    touched = _touched(folder)
    return touched is not None and time.time() - touched / 1e9 < STALE_AFTER


def suspended_process(folder: Path) -> int | None:
    """The process of this computer that has locked the folder, if it is suspended, as Ctrl-Z does it."""
    named = re.fullmatch(rf"process (\d{{1,9}}) on {re.escape(platform.node())}", _first_line(_read(folder)))
    return int(named[1]) if named and _is_suspended(int(named[1])) else None


def _is_suspended(process: int) -> bool:
    """Whether a process is stopped, and goes on with SIGCONT; False where the system does not tell."""
    with suppress(OSError):
        if sys.platform == "linux":
            status = Path(f"/proc/{process}/stat").read_bytes()
            return status.rpartition(b") ")[2].startswith(b"T")
        shown = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, check=False)
        return shown.stdout.strip().startswith(b"T")
    return False


def _lock(descriptor: int) -> bool:
    """Lock an open file or folder; False where the file system has no such locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno in TRANSIENT:
            raise
        return False
    return True


def _open_locked(folder: int) -> tuple[int, bool]:
    """Open and lock the lock file; the second value is False where the file system has no locks."""
    while True:
        descriptor = os.open(NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666, dir_fd=folder)
        try:
            # The process that held it may have removed the file in between: then this locks a file without a name.
            locked = _lock(descriptor)
            if not locked or os.path.samestat(os.fstat(descriptor), os.stat(NAME, dir_fd=folder)):
                return descriptor, locked
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def _touching(descriptor: int) -> Iterator[None]:
    """Within the block, the lock file is touched every few seconds."""
    ended = threading.Event()

    def touch() -> None:
        while not ended.wait(SECONDS_BETWEEN_TOUCHES):
            with suppress(OSError):
                os.utime(descriptor)

    thread = threading.Thread(target=touch, name="lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _refuse_live_holder(folder: Path, system_locks: bool) -> None:
    """Refuse a folder whose lock file is still touched, by a process that system locks do not show."""
    before = _read(folder)
    if not before or (system_locks and before.partition(b"\n")[0].endswith(f" on {platform.node()}".encode())):
        return
    touched, deadline = _touched(folder), time.monotonic() + STALE_AFTER
    while time.monotonic() < deadline:
        time.sleep(SECONDS_BETWEEN_TOUCHES / 10)
        if _touched(folder) not in (touched, None):
            raise _in_use(folder)


def _touched(folder: Path) -> int | None:
    """When the lock file was last touched; None if it is gone. Opening it refreshes network file systems' caches."""
    with suppress(OSError), open_descriptor(folder / NAME, CAREFULLY) as descriptor:
        return os.fstat(descriptor).st_mtime_ns
    return None


def _in_use(folder: Path) -> UserError:
    holder, process = _first_line(_read(folder)), suspended_process(folder)
    if process is not None:
        return UserError(
            f"{folder}: {holder} writes to it, and is suspended. `fg` in its terminal lets it go on, or "
            f"`kill -CONT {process}`; `kill -TERM {process}; kill -CONT {process}` ends it."
        )
    return UserError(f"{folder}: {holder} writes to it. Wait for it to end, or choose another folder with --out.")


def _read(folder: Path) -> bytes:
    """The content of the lock file; empty where it cannot be read."""
    with suppress(OSError), open_descriptor(folder / NAME, CAREFULLY) as descriptor:
        return os.read(descriptor, 1000)
    return b""


def _first_line(noted: bytes) -> str:
    return noted.decode("utf-8", errors="replace").strip()[:200].partition("\n")[0] or "another process"
