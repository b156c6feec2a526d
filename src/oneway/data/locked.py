"""Folders in the cache that one process at a time writes to."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.words import say

ANOTHER_CACHE = (
    "Choose another folder with --data.cache; for a command without that flag, with the variable XDG_CACHE_HOME."
)


def cache_root(chosen: Path | None) -> Path:
    """The folder that the user chose, or else one in the user's cache folder."""
    return chosen or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oneway"


@contextmanager
def locked(place: Path, name: str, console: Console, private: bool, kept: str) -> Iterator[None]:
    """Lets one process at a time into the block; a process that is killed leaves no lock behind.

    Args:
        place: The folder; it is made.
        name: Of the lock.
        console: Where it is said that another process is waited for.
        private: Nobody else may read the folder.
        kept: What is kept there, such as `decoded images`.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        if private:
            place.chmod(0o700)
        with (place / f".{name}.lock").open("a") as file:
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
