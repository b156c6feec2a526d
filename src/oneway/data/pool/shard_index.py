"""The index of shards: from the headers of each, from an earlier index, or from the one that was packed with them."""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.progress import progress_bar
from oneway.common.words import counted, say
from oneway.data.decode.images import SUFFIXES, hidden
from oneway.data.pool.entries import (
    ENTRY,
    INDEX,
    REPEATED,
    Entries,
    PoolIndex,
    Shard,
    build,
    digest_entries,
    digest_name,
    load,
    refuse_repeated,
)
from oneway.data.pool.files import Files, Status, changed, opened
from oneway.data.pool.tar import Damaged, Member, Read, members

BESIDE = "index"
"""The folder beside shards in which `oneway shards` leaves their index."""

AT_ONCE = 2**15
"""Bytes that are asked for where a header lies on another machine: the next ones may be among them."""

THREADS, THREADS_THAT_WAIT = 4, 32
MOST_SIZE = 2**32 - 1  # bytes of an image


def index_shards(paths: tuple[str, ...], files: Files, place: Path, refresh: bool, console: Console) -> PoolIndex:
    """The index of shards, kept in a folder; those that it has not yet, or no longer, are all that is read.

    Raises:
        UserError: A shard has changed, is cut short or no tar file, or an image is there twice; names the file.
    """

    def refuse(index: PoolIndex) -> PoolIndex:
        return refuse_repeated(
            index, lambda image: member_name(index, files, image), lambda remark: say(console, f"Note: {remark}")
        )

    index = None if refresh else load(place)
    known = index.by_path if index else {}
    current = tuple(known) == paths
    if not files.waits:  # others are compared with what they were whenever they are read
        for path in paths:
            if path in known and (status := files.status(path)) != (shard := known[path][0]).status:
                current = False
                if not _same_members(path, files, status, shard):
                    raise changed(path, shard.status, status)
    if index is not None and current:
        return refuse(index) if (place / REPEATED).exists() else index
    if index is not None and (remark := _joined(paths, known)):
        say(console, f"Note: {remark}")
    scan = partial(_scan, files, known, index, _given_index(paths, files, place))
    with progress_bar(console, "Indexing shards", len(paths)) as advance:
        found = build(place, paths, scan, THREADS_THAT_WAIT if files.waits else THREADS, advance)
    return refuse(found)


def images_of(path: str, files: Files, status: Status) -> list[Member]:
    """The images of a shard; a UserError where two have one name."""
    with _reading(path, files) as read:
        found = [member for member in members(read, status.size, path) if _is_image(member)]
    (name, count), *_ = Counter(member.name for member in found).most_common(1) or [("", 0)]
    if count > 1:
        raise UserError(f"{path}: has {count} images called {name}. Rename or remove all but one.")
    return found


def entries_of(images: list[Member], checks: list[int] | None = None) -> Entries:
    """The entries of the images in a shard, with the CRC-32 of each where it is known."""
    entries = np.zeros(len(images), dtype=ENTRY)
    for number, (name, header, offset, size) in enumerate(images):
        entries[number] = (offset, digest_name(name), size, checks[number] if checks else 0, offset - header, 0)
    return entries


def member_name(index: PoolIndex, files: Files, image: int) -> str:
    """Shard and name of an image; a UserError where there is another now."""
    shard, (entry,) = index.shard_of(image), index.entries(image)
    offset, header = int(entry["offset"]), int(entry["header"])
    return f"{shard.path}/{first_member(shard, files.read(shard.path, offset - header, header)).name}"


def first_member(shard: Shard, content: bytes) -> Member:
    """The member that some bytes of a shard begin with."""
    try:
        return next(members(lambda start, count: content[start : start + count], shard.status.size, shard.path))
    except (Damaged, StopIteration):
        raise changed(shard.path, shard.status, shard.status) from None


def _is_image(member: Member) -> bool:
    path = Path(member.name)
    return path.suffix.lower() in SUFFIXES and not hidden(path) and 0 < member.size <= MOST_SIZE


@contextmanager
def _reading(path: str, files: Files) -> Iterator[Read]:
    """Read parts of a shard: a local one stays open; of others more comes than is asked for, as it may be next."""
    if not files.waits:
        with opened(path) as file:
            yield lambda start, count: os.pread(file.fileno(), count, start)
        return
    first, content = 0, b""

    def read(start: int, count: int) -> bytes:
        nonlocal first, content
        if not first <= start <= start + count <= first + len(content):
            first, content = start, files.read(path, start, max(count, AT_ONCE))
        return content[start - first : start - first + count]

    yield read


def _scan(
    files: Files, known: Mapping[str, tuple[Shard, int]], index: PoolIndex | None, given: PoolIndex | None, path: str
) -> tuple[Status, Entries]:
    """What a shard is now, and its images."""
    status = files.status(path)
    if index is not None and path in known and known[path][0].status == status:
        shard, first = known[path]
        return status, index.entries(first, shard.images)
    if given is not None and (name := posixpath.basename(path)) in given.by_path:
        shard, first = given.by_path[name]
        if shard.status.size == status.size:
            return status, given.entries(first, shard.images)
    return status, entries_of(images_of(path, files, status))


def _given_index(paths: tuple[str, ...], files: Files, place: Path) -> PoolIndex | None:
    """The index that lies beside shards, where there is one; a copy of it where it is on another machine."""
    if len({posixpath.dirname(path) for path in paths}) != 1:
        return None
    folder = posixpath.join(posixpath.dirname(paths[0]), BESIDE)
    if not files.waits:
        return load(Path(folder))
    copy = place / BESIDE
    copy.mkdir(exist_ok=True)
    try:
        (copy / INDEX).write_bytes(_whole(f"{folder}/{INDEX}", files))
        return load(copy, lambda name: _whole(f"{folder}/{name}", files))
    except UserError:
        return None


def _whole(path: str, files: Files) -> bytes:
    status = files.status(path)
    parts = range(0, status.size, 2**24)
    return b"".join(files.read(path, start, min(2**24, status.size - start), status) for start in parts)


def _same_members(path: str, files: Files, status: Status, shard: Shard) -> bool:
    """Whether a shard of the same length, written anew, has images of the same names and sizes."""
    if status.size != shard.status.size:
        return False
    return digest_entries([entries_of(images_of(path, files, status))]) == shard.digest


def _joined(paths: tuple[str, ...], known: Mapping[str, object]) -> str:
    """Which shards are new, and which are gone."""
    new, gone = [path for path in paths if path not in known], [path for path in known if path not in paths]
    words = [
        f"{counted(len(those), 'shard')} {how} ({those[0]} is the first)"
        for those, how in ((new, "more"), (gone, "fewer"))
        if those
    ]
    return f"Since the pool was indexed: {', '.join(words)}." if words else ""
