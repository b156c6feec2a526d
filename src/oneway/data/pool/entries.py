"""The index of a pool: where each of its images lies, in 32 bytes on disk, read by position when it is asked for.

It is built once, file by file, and continued where it was interrupted. Names are not in it: a shard has them in the
headers before its images, and that of an image is compared with its index entry whenever the image is read.
"""

from __future__ import annotations

import json
import os
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oneway.common.bounded import read_bounded
from oneway.common.errors import UserError
from oneway.common.links import replace_file
from oneway.common.threads import in_threads
from oneway.common.words import counted
from oneway.data.pool.files import Status

FORMAT = 1
ENTRY = np.dtype(
    [
        ("offset", "<u8"),  # of its content in a shard; of a single file, of its name among the names
        ("name", "<u8"),  # a digest of its name
        ("size", "<u4"),  # bytes of its content
        ("check", "<u4"),  # CRC-32 of its content where it is known, else 0
        ("header", "<u4"),  # bytes from its first header to its content; of a single file, those of its name
        ("stamp", "<u4"),  # of a single file, when it was written
    ]
)
NAMED = np.dtype([("name", "<u8"), ("size", "<u4")])  # what of it tells one image from others
INDEX, PART, JOURNAL = "index.json", "entries.part", "shards.part"
REPEATED = "repeated"  # where an image was found to be there twice
NAME = re.compile(r"entries-[0-9a-f]{16}")  # of the file with entries; an index may come from anywhere
MOST_BYTES = 2**28  # of index.json, with some 100 bytes for each shard
Entries = npt.NDArray[np.void]


class Shard(NamedTuple):
    """A file with images in it, as it was when it was indexed."""

    path: str
    status: Status
    images: int
    digest: str  # of names and sizes of its images


class PoolIndex:
    """Where the images of a pool lie."""

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.folder = folder
        self.shards = tuple(Shard(path, Status(*status), *rest) for path, status, *rest in about["shards"])
        if not all(type(shard.images) is int and shard.images >= 0 for shard in self.shards):
            raise ValueError("no number of images")
        self.digest: str = about["digest"]
        """A digest of all names and sizes, in their order: a folder has that of the shards it is packed into."""
        self.subfolders: dict[str, int] = about["subfolders"]
        """Of a pool that is a folder: the folders in it and itself, with the times at which they were written."""
        self.count = sum(shard.images for shard in self.shards)
        self.path = folder / about["entries"]
        self.file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.file)
        if os.fstat(self.file).st_size < self.count * ENTRY.itemsize:
            raise ValueError("cut short")

    def __getstate__(self) -> dict[str, Any]:
        """For a process that inherits the open file; what can be computed again is left out."""
        return {name: value for name, value in self.__dict__.items() if name != "by_path"}

    def __len__(self) -> int:
        return self.count

    def entries(self, first: int, count: int = 1) -> Entries:
        """The entries of some images that follow each other."""
        return np.frombuffer(self._read(first * ENTRY.itemsize, count * ENTRY.itemsize), dtype=ENTRY)

    def name(self, image: int) -> str:
        """The name of a single file; names are stored behind the entries."""
        (entry,) = self.entries(image)
        start = self.count * ENTRY.itemsize + int(entry["offset"])
        return self._read(start, int(entry["header"])).decode("utf-8", "surrogateescape")

    def _read(self, start: int, count: int) -> bytes:
        found = os.pread(self.file, count, start)
        if len(found) < count:
            raise UserError(f"{self.path}: cut short. Remove {self.folder}: the pool is indexed again.")
        return found

    @cached_property
    def firsts(self) -> npt.NDArray[np.int64]:
        """The number of each shard's first image."""
        counts = np.array([shard.images for shard in self.shards], dtype=np.int64)
        return np.cumsum(counts) - counts

    def shard_of(self, image: int) -> Shard:
        """The shard that holds an image."""
        return self.shards[int(np.searchsorted(self.firsts, image, "right")) - 1]

    @cached_property
    def by_path(self) -> dict[str, tuple[Shard, int]]:
        """Each shard, and the number of its first image."""
        return {shard.path: (shard, int(first)) for shard, first in zip(self.shards, self.firsts, strict=True)}


def digest_name(name: str) -> int:
    """Eight bytes: some two of ten million names agree in one of 360,000 pools."""
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little")


def load(folder: Path, fetch: Callable[[str], bytes] | None = None) -> PoolIndex | None:
    """The index in a folder; None where there is none that can be used.

    `fetch` gets the entries from elsewhere, by their file name, where only the rest is there.
    """
    try:
        content, _, seal = read_bounded(folder / INDEX, MOST_BYTES).rpartition(b"\n")
        about = json.loads(content)
        if seal != _seal(content) or about["format"] != FORMAT or not NAME.fullmatch(about["entries"]):
            return None
        if fetch is not None:
            (folder / about["entries"]).write_bytes(fetch(about["entries"]))
        return PoolIndex(folder, about)
    except (UserError, OSError, ValueError, KeyError, TypeError):
        return None


def build(
    folder: Path,
    paths: Sequence[str],
    scan: Callable[[str], tuple[Status, Entries]],
    threads: int,
    advance: Callable[[], None],
) -> PoolIndex:
    """Indexes shards in their order, on some threads; what was indexed before an interruption is not read again."""
    done = _begun(folder, paths)
    with (folder / PART).open("ab") as entries, (folder / JOURNAL).open("ab") as journal:
        entries.truncate(sum(shard.images for shard in done) * ENTRY.itemsize)
        journal.truncate(0)
        journal.writelines(map(_line, done))
        for _ in done:
            advance()
        waiting = paths[len(done) :]
        for path, (status, found) in zip(waiting, in_threads(scan, waiting, threads, 4 * threads), strict=True):
            entries.write(found.tobytes())
            entries.flush()
            done.append(Shard(path, status, len(found), digest_entries([found])))
            journal.write(_line(done[-1]))
            journal.flush()
            advance()
    return save(folder, done)


def save(
    folder: Path, shards: Sequence[Shard], names: bytes = b"", subfolders: dict[str, int] | None = None
) -> PoolIndex:
    """Make an index of the entries that are in the folder, of these shards; what an interruption leaves is none.

    Where the pool is a folder, `names` are those of its files, one after another.
    """
    count = sum(shard.images for shard in shards)
    digest = digest_entries(_pieces(folder / PART, count))
    with (folder / PART).open("ab") as file:
        file.write(names)
        file.flush()
        os.fsync(file.fileno())
    target = folder / f"entries-{blake2b(repr(shards).encode() + digest.encode(), digest_size=8).hexdigest()}"
    (folder / PART).rename(target)
    about = {"format": FORMAT, "digest": digest, "entries": target.name, "subfolders": subfolders or {}}
    content = json.dumps({**about, "shards": shards}, separators=(",", ":")).encode()
    replace_file(folder / INDEX, content + b"\n" + _seal(content))
    (folder / JOURNAL).unlink(missing_ok=True)
    for other in folder.glob("entries-*"):  # those who read it keep it open
        if other != target:
            other.unlink(missing_ok=True)
    if (index := load(folder)) is None:
        raise UserError(f"{folder}: an index cannot be read, just after it was written. Check the disk.")
    return index


def refuse_repeated(index: PoolIndex, place: Callable[[int], str], say: Callable[[str], None]) -> PoolIndex:
    """The index, unless two images have the same name, size and checksum; `place` says where an image is.

    Images of the same name and size whose checksums are not known may be others all the same, as where two cameras
    count up from 000001.jpg: these are counted and said. The index stays, since it is right.
    """
    columns = {key: np.empty(len(index), dtype=ENTRY[key]) for key in ("check", "size", "name")}
    for first in range(0, len(index), 2**16):
        found = index.entries(first, min(2**16, len(index) - first))
        for key, column in columns.items():
            column[first : first + len(found)] = found[key]
    order = np.lexsort([*columns.values()])  # by name, then by size, then by checksum: unknown ones first
    check, size, name = (column[order] for column in columns.values())
    alike = (name[1:] == name[:-1]) & (size[1:] == size[:-1])
    same = np.flatnonzero(alike & (check[1:] == check[:-1]) & (check[1:] != 0))
    unknown = np.flatnonzero(alike & (check[:-1] == 0))

    def named(number: np.intp) -> str:
        return " and ".join(place(int(image)) for image in sorted(order[number : number + 2]))

    if len(same):
        (index.folder / REPEATED).touch()
        raise UserError(
            f"{named(same[0])} have the same name, size and checksum: an image that is there twice. Remove one of them."
        )
    (index.folder / REPEATED).unlink(missing_ok=True)
    if len(unknown):
        images = counted(len(unknown), "image")
        say(f"{images} may be there twice: {named(unknown[0])} have the same name and size. All of them are used.")
    return index


def _begun(folder: Path, paths: Iterable[str]) -> list[Shard]:
    """What an interrupted build has indexed, as far as the shards are the same."""
    try:
        lines = read_bounded(folder / JOURNAL, MOST_BYTES).split(b"\n")[:-1]
        left = (folder / PART).stat().st_size // ENTRY.itemsize
    except (UserError, OSError):
        return []
    done: list[Shard] = []
    for path, line in zip(paths, lines, strict=False):
        try:
            name, status, images, digest = json.loads(line)
        except ValueError:
            break
        left -= images
        if name != path or left < 0:
            break
        done.append(Shard(name, Status(*status), images, digest))
    return done


def _pieces(path: Path, count: int) -> Iterator[Entries]:
    with path.open("rb") as file:
        while count > 0:
            piece = np.fromfile(file, dtype=ENTRY, count=min(count, 2**16))
            if not len(piece):
                raise UserError(f"{path}: cut short, just after it was written. Check the disk.")
            count -= len(piece)
            yield piece


def digest_entries(entries: Iterable[Entries]) -> str:
    """A digest of names and sizes, in their order."""
    digest = blake2b(digest_size=16)
    for piece in entries:
        digest.update(piece[["name", "size"]].astype(NAMED).tobytes())
    return digest.hexdigest()


def _line(shard: Shard) -> bytes:
    return json.dumps(shard).encode() + b"\n"


def _seal(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).hexdigest().encode()
