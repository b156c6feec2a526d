"""What `--data.unlabelled` names: a folder whose images are decoded once into the cache, or a pool that never is."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from oneway.common.errors import UserError
from oneway.data.decode.images import SUFFIXES, hidden
from oneway.data.pool.schemes import scheme_of
from oneway.data.pool.store_files import StoreFiles

MOST_DECODED = 2**35
"""Bytes that the images of a folder may take decoded, by a rough guess, before it is taken for a pool."""

DECODED_PER_BYTE = {".png": 2, ".tif": 1, ".tiff": 1, ".bmp": 1}
DECODED_PER_BYTE_ELSEWHERE = 10
"""Bytes that come of one: photographs are compressed to about a tenth."""

MOST_SHARDS = 10**6
TAR, COMPRESSED = ".tar", (".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")


class PoolSource(NamedTuple):
    """A pool, as it is named."""

    name: str  # as messages and settings have it
    shards: tuple[str, ...] = ()  # paths or addresses, in order
    folder: Path | None = None  # of single files, where there are no shards


def is_pool(named: Path | str, setting: str = "auto") -> bool:
    """Whether what `--data.unlabelled` names is read while training; else it is a folder to decode into the cache.

    By `setting`, a folder of images is a pool `always` or `never`; with `auto` if it is large.
    """
    path, name = Path(named), str(named)
    if scheme_of(name) is not None:
        return True
    if path.is_dir():
        return any(_shards_in(path)) or setting == "always" or (setting == "auto" and _is_large(path))
    return name.lower().endswith((TAR, *COMPRESSED)) or glob.has_magic(name) or expand_braces(name) != [name]


def find_pool(named: Path | str) -> PoolSource:
    """The files of a pool; a UserError where it is not there, or is nothing that images are read from."""
    path, name = Path(named), str(named)
    if scheme_of(name) is not None:
        return PoolSource(name, _remote_shards(name))
    if path.is_dir():
        if not (shards := tuple(_shards_in(path))):
            return PoolSource(name, folder=path)
        if any(_images(path)):
            raise UserError(f"{path}: has shards ({shards[0]}) and images beside them. Put either into another folder.")
        return PoolSource(name, shards)
    paths = [name] if path.exists() else _expand_globs(name, lambda pattern: sorted(glob.glob(pattern, recursive=True)))
    if not paths:
        raise UserError(f"{name}: no shard has such a name (--data.unlabelled).")
    for each in paths:
        _require_shard(each)
        if not os.path.isfile(each):
            raise UserError(f"{each}: no such file (--data.unlabelled {name}).")
    return PoolSource(name, tuple(paths))


def expand_braces(pattern: str) -> list[str]:
    """`{000..123}` and `{a,b}` spelt out, as a shell does."""
    found = re.search(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}", pattern)
    if not found:
        return [pattern]
    first, last, words = found.groups()
    if words is None:
        numbers = range(int(first), int(last) + 1)
        if len(numbers) > MOST_SHARDS:
            raise UserError(
                f"{pattern}: would be {len(numbers):,} shards, more than {MOST_SHARDS:,}. Make them larger."
            )
        options = [f"{number:0{len(first)}}" for number in numbers]
    else:
        options = words.split(",")
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [f"{before}{option}{rest}" for option in options for rest in expand_braces(after)]


def _expand_globs(name: str, find: Callable[[str], list[str]]) -> list[str]:
    patterns = expand_braces(name)
    return [path for pattern in patterns for path in (find(pattern) if glob.has_magic(pattern) else [pattern])]


def _remote_shards(name: str) -> tuple[str, ...]:
    scheme = scheme_of(name)
    if scheme in ("http", "https"):
        paths = expand_braces(name)
        if any("*" in path for path in paths):
            raise UserError(f"{name}: a web server does not list its files. Name them, as in {{00000..00999}}.tar.")
    else:
        paths = _expand_globs(name, StoreFiles(scheme or "").glob)
    if not paths:
        raise UserError(f"{name}: no shard has such a name (--data.unlabelled).")
    for path in paths:
        _require_shard(path.partition("?")[0])
    return tuple(paths)


def _require_shard(path: str) -> None:
    if path.lower().endswith(COMPRESSED):
        raise UserError(f"{path}: is compressed, and its images cannot be read one by one. Give it as a plain .tar.")
    if not path.lower().endswith(TAR):
        raise UserError(
            f"{path}: neither a folder nor a tar file (--data.unlabelled). `oneway shards` packs a folder into shards."
        )


def _shards_in(folder: Path) -> list[str]:
    """The shards right in a folder, in order of name."""
    names = sorted(os.listdir(folder))
    return [str(folder / name) for name in names if name.lower().endswith(TAR) and not hidden(Path(name))]


def _images(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Image files in a folder and its subfolders."""
    for entry in os.scandir(folder):
        if hidden(Path(entry.name)):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _images(Path(entry.path))
        elif os.path.splitext(entry.name)[1].lower() in SUFFIXES:
            yield entry


def _is_large(folder: Path) -> bool:
    decoded = 0
    for entry in _images(folder):
        suffix = os.path.splitext(entry.name)[1].lower()
        size = entry.stat().st_size if entry.is_file() else 0
        decoded += size * DECODED_PER_BYTE.get(suffix, DECODED_PER_BYTE_ELSEWHERE)
        if decoded > MOST_DECODED:
            return True
    return False
