"""Images in batches of one size, decoded before their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future

from oneway.common.errors import UserError
from oneway.data.dataset import Bytes
from oneway.data.decode.images import read_image
from oneway.tools.evaluate import PIXELS_AT_ONCE
from oneway.tools.predict.sources import Source

AHEAD = 8
"""Images that are decoded before their turn."""

WAITING_PIXELS = 2**25
"""Most pixels of images that wait for others of their size."""

Decoded = tuple[Source, Bytes]


def decode_ahead(
    sources: Iterable[Source], pool: Executor, failed: Callable[[Source, UserError], None]
) -> Iterator[Decoded]:
    """The images that can be read, in order; calls `failed` with each of the others."""
    ahead: deque[tuple[Source, Future[Bytes]]] = deque()

    def next_one() -> Iterator[Decoded]:
        source, future = ahead.popleft()
        try:
            yield source, future.result()
        except UserError as error:
            failed(source, error)

    for source in sources:
        ahead.append((source, pool.submit(read_image, source.path)))
        if len(ahead) > AHEAD:
            yield from next_one()
    while ahead:
        yield from next_one()


def batches(images: Iterable[Decoded]) -> Iterator[list[Decoded]]:
    """Images of one size together, as many as memory should hold at once."""
    waiting: dict[tuple[int, ...], list[Decoded]] = {}
    pixels = 0
    for source, image in images:
        size, area = image.shape, image.shape[0] * image.shape[1]
        waiting.setdefault(size, []).append((source, image))
        pixels += area
        full = (len(waiting[size]) + 1) * area > PIXELS_AT_ONCE
        for ready in [size] if full else [next(iter(waiting))] if pixels > WAITING_PIXELS else []:
            batch = waiting.pop(ready)
            pixels -= len(batch) * ready[0] * ready[1]
            yield batch
    yield from waiting.values()
