"""Stages that run beside each other, in order and in bounded memory: threads decode and write, batches in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from oneway.common.errors import UserError
from oneway.common.threads import count_cores
from oneway.data.dataset import Bytes
from oneway.data.decode.images import image_size, read_image
from oneway.data.image_style import COLOURS, ImageStyle
from oneway.tools.evaluate import PIXELS_AT_ONCE
from oneway.tools.predict.sources import Source

THREADS = max(2, min(32, count_cores()))
"""How many threads decode and write; the network has its own."""

AHEAD = 2 * THREADS
"""The most images that are decoded before their turn, or wait for being written."""

AHEAD_PIXELS = 2**26
"""The most pixels of these images; a single one may have more."""

FRAMES_AHEAD = 4
"""Frames of a video that are decoded before their turn."""

WAITING_PIXELS = 2**25
"""Most pixels of images that wait for others of their size."""

Decoded = tuple[Source, Bytes]
Item = TypeVar("Item")
Result = TypeVar("Result")
_END: Any = object()


@contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads whose work is awaited, but for what has not begun when the block fails or is interrupted."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


class InOrder(Generic[Item, Result]):
    """Work of threads whose results come in the order in which it was given to them; no more of it waits than fits."""

    def __init__(self, pool: Executor, most: int = AHEAD) -> None:
        self.pool, self.most = pool, most
        self.waiting: deque[tuple[Item, int, Future[Result]]] = deque()
        self.pixels = 0

    def make_room(self, pixels: int) -> Iterator[tuple[Item, Future[Result]]]:
        """The oldest pieces of work, until one of so many pixels has room beside the others."""
        while self.waiting and (len(self.waiting) >= self.most or self.pixels + pixels > AHEAD_PIXELS):
            yield self.oldest()

    def submit(self, item: Item, pixels: int, work: Callable[..., Result], *arguments: Any) -> None:
        """Have a piece of work done, for which there is room."""
        self.waiting.append((item, pixels, self.pool.submit(work, *arguments)))
        self.pixels += pixels

    def rest(self) -> Iterator[tuple[Item, Future[Result]]]:
        """All that is left."""
        while self.waiting:
            yield self.oldest()

    def oldest(self) -> tuple[Item, Future[Result]]:
        """What was given first."""
        item, pixels, future = self.waiting.popleft()
        self.pixels -= pixels
        return item, future


def prefetch(items: Iterable[Item]) -> Generator[Item]:
    """The same items, prefetched by a thread, `FRAMES_AHEAD` of them; an error is raised in its turn."""
    iterator = iter(items)
    with threads(1) as pool:
        coming = deque(pool.submit(next, iterator, _END) for _ in range(FRAMES_AHEAD))
        while (item := coming.popleft().result()) is not _END:
            coming.append(pool.submit(next, iterator, _END))
            yield item


def decode_ahead(
    sources: Iterable[Source],
    pool: Executor,
    failed: Callable[[Source, UserError], None],
    style: ImageStyle = COLOURS,
) -> Iterator[Decoded]:
    """The images that can be read, in order, as a model sees them; calls `failed` with each of the others."""
    decoding: InOrder[Source, Bytes] = InOrder(pool)

    def readable(ready: Iterable[tuple[Source, Future[Bytes]]]) -> Iterator[Decoded]:
        for source, future in ready:
            try:
                yield source, future.result()
            except UserError as error:
                failed(source, error)

    for source in sources:
        pixels = _pixels_of(source)
        yield from readable(decoding.make_room(pixels))
        decoding.submit(source, pixels, read_image, source.path, None, style)
    yield from readable(decoding.rest())


def _pixels_of(source: Source) -> int:
    """As its header says; what is wrong with a file is found out when it is decoded."""
    try:
        height, width = image_size(source.path)
    except UserError:
        return 0
    return height * width


def batches(images: Iterable[Decoded]) -> Iterator[list[Decoded]]:
    """Images of one size together, as many as memory should hold at once."""
    waiting: dict[tuple[int, ...], list[Decoded]] = {}
    pixels = 0
    for source, image in images:
        size, area = image.shape, image.shape[0] * image.shape[1]
        waiting.setdefault(size, []).append((source, image))
        pixels += area
        if (len(waiting[size]) + 1) * area > PIXELS_AT_ONCE:
            due = size
        elif pixels > WAITING_PIXELS:
            due = next(iter(waiting))  # the size that waits longest
        else:
            continue
        batch = waiting.pop(due)
        pixels -= len(batch) * due[0] * due[1]
        yield batch
    yield from waiting.values()
