"""A pool of images without labels, larger than memory and disk: read by random access, and decoded when asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path

from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.streams import stream
from oneway.common.threads import count_cores
from oneway.common.words import say
from oneway.config import Data
from oneway.data.cache.locked import cache_root, locked
from oneway.data.dataset import Listing, PoolRecord, factor_of
from oneway.data.pool.decoders import Processes, Threads, can_divide
from oneway.data.pool.folder_index import index_folder
from oneway.data.pool.reader import Broken, Choose, ImageRegion, Reader
from oneway.data.pool.schemes import files_for
from oneway.data.pool.shard_index import index_shards
from oneway.data.pool.sources import PoolSource, find_pool

FEW = 10
"""Images that may be unreadable in any case, before a share of them means anything."""

NAMED = 5  # unreadable images that are named as they turn up
ATTEMPTS = 100  # to find one that can be read
THREADS_THAT_WAIT = 32
MOST_PROCESSES = 16  # five decode what an H200 asks for; each takes some 30 MB
AS_THEY_ARE = partial(factor_of, most=1)  # how many times smaller images are read


@dataclass(eq=False)
class Pool(Reader):
    """Images by number; reading them is safe from several threads."""

    most_broken: float  # share of images that may turn out unreadable
    console: Console  # where it is said which are
    broken: dict[int, str] = field(default_factory=dict)  # what is wrong with them
    asked: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def record(self) -> PoolRecord:
        """The same for the same names and sizes in the same order, in a folder or in shards."""
        return PoolRecord(len(self.index), self.index.digest)

    @property
    def workers(self) -> int:
        """How many threads or processes read and decode: as many as there are cores, or more where they mostly wait."""
        processes = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)  # that torchrun has started here
        return THREADS_THAT_WAIT if self.files.waits else max(2, min(MOST_PROCESSES, count_cores() // processes))

    def decoders(self, seed: int, slots: int, pixels: int) -> Threads | Processes:
        """What decodes images ahead, see `engine.store.Decoders`."""
        if self.files.waits or not can_divide():
            return Threads(self.read, seed, self.workers)
        reader = Reader(self.source, self.index, self.files, self.factor)
        return Processes(reader, self.read, seed, self.workers, slots, 3 * pixels)

    def read(
        self, image: int, seed: int, choose: Choose, decode: Callable[[int, Choose], ImageRegion] | None = None
    ) -> ImageRegion:
        """The region of an image, by `decode`; where it cannot be decoded, that of a substitute.

        Which other image that is depends on the seed alone.

        Raises:
            UserError: Too many cannot be decoded; or as in `decode`.
        """
        with self.lock:
            self.asked += 1
        others = None
        for _ in range(ATTEMPTS):
            if image not in self.broken:
                try:
                    return (decode or self.decode)(image, choose)
                except Broken as error:
                    self._count(image, str(error))
            others = others or stream(seed, "in place of unreadable images", image)
            image = int(others.integers(len(self)))
        raise self._too_many()

    def close(self) -> None:
        """End requests that are waited for."""
        self.files.close()

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


def open_pool_beside(listing: Listing, config: Data, console: Console) -> Pool:
    """The pool that `data.unlabelled` names; what is in the data set already is none of it."""
    assert config.unlabelled is not None
    files = [path for item in listing.items for path in (item.image, item.mask) if path]
    factor = partial(factor_of, most=listing.reduction, least_side=listing.least_side)  # another process calls it, too
    return open_pool(find_pool(config.unlabelled), config, console, files, factor)


def open_pool(
    source: PoolSource,
    config: Data,
    console: Console,
    left_out: Collection[Path] = (),
    factor: Callable[[tuple[int, int]], int] = AS_THEY_ARE,
) -> Pool:
    """A pool, indexed now where it has not been; of a folder, files that are in the data set already are left out.

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
    return Pool(source, index, files, factor, config.most_broken, console)
