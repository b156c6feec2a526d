"""Folders in the cache that one process at a time writes to."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.words import say

ANOTHER_CACHE = (
    "Choose another folder with --data.cache; for a command without that flag, with the variable XDG_CACHE_HOME."
)

SILENT_AFTER = 3600.0
"""Seconds without a write after which, where there are no locks, nobody is taken to make a folder any more."""


def cache_root(chosen: Path | None) -> Path:
    """The folder that the user chose, or else one in the user's cache folder."""
    if chosen:
        return chosen
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "oneway"
    try:
        return Path.home() / ".cache" / "oneway"
    except RuntimeError:  # without HOME, a number of a user that the system has no entry for, as containers are given
        raise UserError(f"There is no place for the cache: this user has no home folder. {ANOTHER_CACHE}") from None


@contextmanager
def locked(place: Path, name: str, console: Console, private: bool, kept: str) -> Iterator[None]:
    """Make a folder and let one process at a time into the block; one that is killed leaves no lock behind.

    A private folder may be read by nobody else. Messages say what is kept there, such as `decoded images`.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        if private and place.stat().st_mode & 0o077:
            place.chmod(0o700)
        with ExitStack() as stack:
            if (file := _lock_file(place / f".{name}.lock")) is not None:
                stack.enter_context(file)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    say(console, f"Waiting for another process that makes {kept} here.")
                    fcntl.flock(file, fcntl.LOCK_EX)
                except OSError:
                    pass  # a file system without locks
            yield
    except OSError as error:
        raise UserError(f"{place}: {kept} cannot be kept there ({error.strerror or error}). {ANOTHER_CACHE}") from error


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder that gets its name, in place of another, once the block has ended well; else nothing is left of it.

    Where there are locks, one process at a time makes it. Where there are none, several may, and the first one's stays:
    they make the same. What killed processes have left is removed.
    """
    name = f".{target.name[:40]}-"
    alone = _has_locks(target.parent)
    for left in target.parent.glob(f"{glob.escape(name)}*"):
        if alone or _is_silent(left):
            shutil.rmtree(left, ignore_errors=True)
    ours = f"{name}{platform.node()[:40]}-{os.getpid()}"
    new, old = (target.with_name(f"{ours}-{kind}") for kind in ("new", "old"))
    before = _identity(target)
    try:
        new.mkdir()
        yield new
        if _identity(target) == before:
            with suppress(FileNotFoundError):
                target.rename(old)
            try:
                new.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # or else another process was faster
                    raise
    finally:
        for folder in (new, old):
            shutil.rmtree(folder, ignore_errors=True)


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _has_locks(folder: Path) -> bool:
    """Whether locks work in a folder where this process holds one."""
    for path in folder.glob(".*.lock"):
        with suppress(OSError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def _is_silent(folder: Path) -> bool:
    """Whether nobody has written to a folder for long."""
    written = 0.0
    for path in (folder, *folder.rglob("*")):
        with suppress(OSError):
            written = max(written, path.lstat().st_mtime)
    return time.time() - written > SILENT_AFTER


def _lock_file(path: Path) -> TextIO | None:
    """The lock; where nothing may be written, the one that is there, or none: what is kept can still be read."""
    try:
        return path.open("a")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
    try:
        return path.open()
    except OSError:
        return None
