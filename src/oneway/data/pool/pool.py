"""A pool of images without labels, larger than memory and disk: read by random access, and decoded when asked for."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Collection
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from oneway.common.bounded import open_regular
from oneway.common.errors import UserError
from oneway.common.streams import stream
from oneway.common.words import say
from oneway.config import Data
from oneway.data.cache.locked import cache_root, locked
from oneway.data.dataset import Bytes, Listing, PoolRecord
from oneway.data.decode.images import Box, read_part
from oneway.data.pool.entries import PoolIndex, digest_name
from oneway.data.pool.files import Files, Unreachable, changed, files_for
from oneway.data.pool.folder_index import index_folder, time_stamp
from oneway.data.pool.shard_index import first_member, index_shards, member_name
from oneway.data.pool.sources import PoolSource, find_pool

FEW = 10
"""Images that may be unreadable in any case, before a share of them means anything."""

NAMED = 5  # unreadable images that are named as they turn up
ATTEMPTS = 100  # to find one that can be read
THREADS_THAT_WAIT = 32
TIMES = 3  # that an image with another checksum is asked for
MOST_BYTES = 2**28  # of an image file
MOST_HEADER = 2**20  # bytes before it


class Part(NamedTuple):
    """A part of a decoded image."""

    size: tuple[int, int]  # height and width of the whole
    box: Box  # its first row and column, and those behind its last
    pixels: Bytes  # H×W×3, those of the box
    image: int  # which it is of the pool: another than was asked for, where that cannot be decoded


class Pool:
    """Images by number; reading them is safe from several threads."""

    def __init__(
        self,
        source: PoolSource,
        index: PoolIndex,
        files: Files,
        most_broken: float,
        factor: Callable[[tuple[int, int]], int],
        console: Console,
    ) -> None:
        """The pool.

        Args:
            source: As it was named.
            index: Of its images.
            files: What reads its shards.
            most_broken: Share of images that may turn out unreadable.
            factor: How many times smaller an image of some size is read, as the data set has them.
            console: Where it is said which are.
        """
        self.source, self.index, self.files, self.factor = source, index, files, factor
        self.most_broken, self.console = most_broken, console
        self.broken: dict[int, str] = {}
        self.asked = 0
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.index)

    @property
    def record(self) -> PoolRecord:
        """The same for the same names and sizes in the same order, in a folder or in shards."""
        return PoolRecord(len(self.index), self.index.digest)

    @property
    def threads(self) -> int:
        """That read and decode: as many as there are cores, or more where they mostly wait."""
        processes = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)  # that torchrun has started here
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(THREADS_THAT_WAIT if self.files.waits else 2, cores // processes)

    def name(self, image: int) -> str:
        """The path of an image, with that of the shard that it is in."""
        folder = self.source.folder
        return member_name(self.index, self.files, image) if folder is None else str(folder / self.index.name(image))

    def content(self, image: int) -> tuple[str, bytes]:
        """Name and bytes of an image file; a UserError where they are not those that were indexed."""
        return self._from_shard(image) if self.source.folder is None else self._from_folder(self.source.folder, image)

    def decode(self, image: int, choose: Callable[[tuple[int, int]], Box] = lambda size: (0, 0, *size)) -> Part:
        """A part of an image, chosen by its height and width.

        Raises:
            Broken: It cannot be decoded.
            UserError: It cannot be read, or is another than was indexed.
        """
        name, content = self.content(image)
        try:
            if not content:
                raise UserError(f"{name}: an empty file, or one of more than {MOST_BYTES} bytes.")
            return Part(*read_part(Path(name), content, choose, self.factor), image)
        except UserError as error:
            raise Broken(str(error)) from error

    def read(self, image: int, seed: int, choose: Callable[[tuple[int, int]], Box]) -> Part:
        """As `decode`; in place of one that cannot be, the first of others that can, which depend on the seed alone.

        Raises:
            UserError: Too many cannot be decoded; or as in `decode`.
        """
        with self.lock:
            self.asked += 1
        others = None
        for _ in range(ATTEMPTS):
            if image not in self.broken:
                try:
                    return self.decode(image, choose)
                except Broken as error:
                    self._count(image, str(error))
            others = others or stream(seed, "in place of unreadable images", image)
            image = int(others.integers(len(self)))
        raise self._too_many()

    def close(self) -> None:
        """Ends what is waited for."""
        self.files.close()

    def _from_shard(self, image: int) -> tuple[str, bytes]:
        shard, (entry,) = self.index.shard_of(image), self.index.entries(image)
        offset, size, header = (int(entry[column]) for column in ("offset", "size", "header"))
        if header > min(MOST_HEADER, offset):  # an index may come from anywhere
            raise changed(shard.path, shard.status, shard.status)
        if size > MOST_BYTES:
            return self.name(image), b""
        for _ in range(TIMES if self.files.waits else 1):  # what is damaged on its way may come whole another time
            found = self.files.read(shard.path, offset - header, header + size, shard.status)
            whole = not entry["check"] or zlib.crc32(found[header:]) == entry["check"]
            if whole:
                break
        member = first_member(shard, found)
        if (digest_name(member.name), member.size, len(found)) != (int(entry["name"]), size, header + size):
            raise changed(shard.path, shard.status, shard.status)
        name = f"{shard.path}/{member.name}"
        if not whole and self.files.waits:
            raise Unreachable(f"{name}: damaged on its way; its checksum is another than in the index.")
        return name, found[header:] if whole else b"damaged"

    def _from_folder(self, folder: Path, image: int) -> tuple[str, bytes]:
        (entry,) = self.index.entries(image)
        path = folder / self.index.name(image)
        try:
            with open_regular(path) as file:
                status = os.fstat(file.fileno())
                content = file.read(min(status.st_size, MOST_BYTES + 1))
        except FileNotFoundError:
            raise UserError(f"{path}: gone since {folder} was indexed. Bring it back, or use --data.refresh.") from None
        except OSError as error:
            raise Unreachable(f"{path}: cannot be read ({error.strerror or error}).") from error
        if (status.st_size, time_stamp(status)) != (entry["size"], entry["stamp"]):
            raise UserError(
                f"{path}: changed since it was indexed: it has {status.st_size} bytes, and had {entry['size']}, or was "
                "written later. Restore it, or accept the change with --data.refresh."
            )
        return str(path), content if len(content) <= MOST_BYTES else b""

    def _count(self, image: int, problem: str) -> None:
        with self.lock:
            if image in self.broken:
                return
            self.broken[image] = problem
            count = len(self.broken)
        if count <= NAMED:
            more = "; further ones are counted" if count == NAMED else ""
            note = f"{self.source.name}: another image is used in place of one that cannot be read{more}. {problem}"
            say(self.console, f"Note: {note}")
        if count > max(FEW, self.most_broken * self.asked):
            raise self._too_many()

    def _too_many(self) -> UserError:
        first = next(iter(self.broken.values()))
        return UserError(
            f"{self.source.name}: {len(self.broken)} of the {self.asked} images that were read of the pool cannot be "
            f"decoded, more than data.most_broken ({100 * self.most_broken:g} %) allows. {first}"
        )


class Broken(UserError):
    """An image that cannot be decoded."""


def open_pool_beside(listing: Listing, config: Data, console: Console) -> Pool:
    """The pool that `data.unlabelled` names; what is in the data set already is none of it."""
    assert config.unlabelled is not None
    files = [path for item in listing.items for path in (item.image, item.mask) if path]
    return open_pool(find_pool(config.unlabelled), config, console, files, listing.factor)


def open_pool(
    source: PoolSource,
    config: Data,
    console: Console,
    left_out: Collection[Path] = (),
    factor: Callable[[tuple[int, int]], int] = lambda size: 1,
) -> Pool:
    """A pool, indexed now where it has not been.

    Args:
        source: Which.
        config: The settings of the data.
        console: For progress and notes.
        left_out: Files that are in the data set already; where the pool is a folder, they are none of it.
        factor: See `Pool`.

    Raises:
        UserError: It has no images, or has changed since it was indexed; names the file, and the way out.
    """
    files = files_for(source.shards[0]) if source.shards else files_for(source.name)
    resolved = {path.resolve() for path in left_out} if source.folder else set()
    inside = {path for path in resolved if source.folder and path.is_relative_to(source.folder.resolve())}
    key = blake2b("\n".join((source.name, *sorted(map(str, inside)))).encode(), digest_size=8).hexdigest()
    place = cache_root(config.cache) / "pools" / key
    with locked(place, "index", console, config.cache is None, "an index"):
        if source.folder is not None:
            index = index_folder(source.folder, inside, place, config.refresh, console)
        else:
            index = index_shards(source.shards, files, place, config.refresh, console)
    if not len(index):
        raise UserError(
            f"{source.name}: no image found in it (--data.unlabelled). Give JPEG, PNG, WebP, TIFF or BMP files; others "
            "have no decoder here."
        )
    return Pool(source, index, files, config.most_broken, factor, console)
