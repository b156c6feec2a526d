"""A folder in the cache that is made of a file, and found again by the content of that."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from rich.console import Console

from oneway.common.words import say
from oneway.data.cache.locked import cache_root, locked, new_folder


def ensure_folder(
    path: Path,
    about: str,
    cache: Path | None,
    console: Console,
    fill: Callable[[Path], None],
    is_whole: Callable[[Path], bool],
) -> Path:
    """The folder in the cache for a file that is known by some text (`about`), made where it is not there.

    `fill` writes it, where there is none, or one from which something is gone: not all that belongs there, as
    `is_whole` tells. A cache in which it is whole need not be writable.
    """
    key = blake2b(about.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    home = cache_root(cache) / "unpacked" / key
    target = home / ("unpacked" if path.stem.startswith(".") else path.stem)  # a stem may be `.` or `..`
    if is_whole(target):
        return target
    with locked(home, "unpacking", console, private=cache is None, kept="unpacked files"):
        if not is_whole(target):  # nor made by another process meanwhile
            with new_folder(target) as new:
                fill(new)
            say(console, f"{path}: unpacked into {target}")
    return target
