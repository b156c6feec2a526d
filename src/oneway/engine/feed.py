"""What an iteration needs, on the device when it begins: its draws, and the pixels they refer to.

Data that fit into the device's memory lie there from the start. Others stay in the cache on disk, of which the system
keeps in memory what it can; the images of the next batch are brought together while the device computes this one. Those
of a pool are decoded some batches ahead, and only what their crops are made of is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from oneway.config import Jitter
from oneway.draws import Draws, Plan, draw, each_column
from oneway.engine import memory
from oneway.engine.jitter import most_needed, needed_box
from oneway.engine.store import Array, FlatArray, FlatArrayOnDisk, Images, Part, Pool, Store
from oneway.models.projector import CELL

SHARE_OF_DEVICE = 0.5
"""Of the device's free memory, at most this much for the data; the rest is for the network's activations."""

BATCHES_AHEAD = 3
"""That a pool decodes at least: some images take longer than others."""

PATIENCE = 0.5
"""Seconds that `Feed.ready` waits."""

Share = Callable[[Draws], Draws]
"""What one of several processes takes of a table of draws."""


@dataclass(frozen=True)
class Feed:
    """A store, and a function from an iteration to its draws; calling it makes the store ready for them."""

    store: Store
    draws: Callable[[int], Draws]
    place: str
    """Where the data are, in words."""

    ready: Callable[[int], bool] = lambda iteration: True
    """Whether `draws` would give those of an iteration at once; waits a moment for them, but not for ever."""

    close: Callable[[], None] = lambda: None
    """Ends what is done in advance."""


def feed(
    samples: Images, plan: Plan, device: torch.device, jitter: Jitter | None = None, share: Share = lambda d: d
) -> Feed:
    """All data on the device if they take at most half of its free memory; otherwise streamed batch by batch.

    Args:
        samples: The images.
        plan: What is drawn from them.
        device: Where they are used.
        jitter: How crops are made; a pool decodes for those.
        share: What this process takes of each iteration.
    """
    if samples.pool is not None and plan.batch_unlabelled:
        assert jitter is not None
        return pooled(samples, samples.pool, plan, device, jitter, share)
    there = device.type == "cpu" and isinstance(samples.pixels, np.ndarray)
    needed = samples.pixels.nbytes + samples.labels.nbytes
    if there or needed <= SHARE_OF_DEVICE * (memory.available(device) or 0):
        return resident(samples, plan, device, share)
    return streamed(samples, plan, device, share)


def resident(samples: Images, plan: Plan, device: torch.device, share: Share = lambda d: d) -> Feed:
    """All data on the device."""
    place = "in GPU memory" if device.type == "cuda" else "in memory"
    return Feed(Store.hold(samples, device), lambda iteration: share(draw(plan, iteration)), place)


def streamed(samples: Images, plan: Plan, device: torch.device, share: Share = lambda d: d) -> Feed:
    """A batch at a time on the device, in a store that stays in place and is filled anew for every iteration."""
    window = _Window(samples, lambda iteration: share(draw(plan, iteration)), device)
    return Feed(window.store, window.fill, "streamed from the cache", close=window.close)


def pooled(
    samples: Images, pool: Pool, plan: Plan, device: torch.device, jitter: Jitter, share: Share = lambda d: d
) -> Feed:
    """As `streamed`, with images of a pool among those without labels."""

    def draws(iteration: int) -> Draws:
        return share(draw(plan, iteration))

    window = _Window(samples, draws, device, _Ahead(pool, len(samples.sizes), draws, plan, jitter))
    return Feed(window.store, window.fill, "streamed from cache and pool", window.ready, window.close)


class _Ahead:
    """Decodes the images of iterations to come."""

    def __init__(self, pool: Pool, first: int, draws: Callable[[int], Draws], plan: Plan, jitter: Jitter) -> None:
        self.pool, self.first, self.seed, self.jitter, self._draw = pool, first, plan.seed, jitter, draws
        self.largest = most_needed(plan.scale[0], jitter, plan.pairs)
        self.depth = BATCHES_AHEAD + math.ceil(pool.threads / plan.batch_unlabelled)
        self.threads = ThreadPoolExecutor(pool.threads, "decode")
        self.coming: dict[int, tuple[Draws, list[Future[Part] | None]]] = {}

    def draws(self, iteration: int) -> Draws:
        """Those of an iteration; it and those that follow are on their way then."""
        wanted = range(iteration, iteration + self.depth)
        for other in [other for other in self.coming if other not in wanted]:
            for future in self.coming.pop(other)[1]:
                if future is not None:
                    future.cancel()
        for other in wanted:
            if other not in self.coming:
                draws = self._draw(other)
                items = draws.unlabelled.item.tolist()
                self.coming[other] = draws, [self._begin(draws, row, item) for row, item in enumerate(items)]
        return self.coming[iteration][0]

    def take(self, iteration: int) -> list[Part | None]:
        """The images of an iteration without labels; None for those that are none of the pool's."""
        _, futures = self.coming.pop(iteration)
        return [None if future is None else future.result() for future in futures]

    def close(self) -> None:
        """Ends without waiting for what is read."""
        self.pool.close()
        self.threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, draws: Draws, row: int, item: int) -> Future[Part] | None:
        if item < self.first:
            return None

        def mine(column: Tensor) -> Tensor:
            return column[row : row + 1]

        own, pairs = each_column(draws.unlabelled, mine), each_column(draws.pairs, mine)
        choose = partial(needed_box, draw=own, pairs=pairs, config=self.jitter, cell=CELL)
        return self.threads.submit(self.pool.read, item - self.first, self.seed, choose)


class _Batch(NamedTuple):
    """One iteration's images, brought together in memory that the device can fetch from by itself."""

    draws: Draws  # items are numbered by their places in the batch
    pixels: Tensor
    labels: Tensor
    start: Tensor
    size: Tensor
    box: Tensor | None


class _Window:
    def __init__(
        self, samples: Images, draws: Callable[[int], Draws], device: torch.device, ahead: _Ahead | None = None
    ) -> None:
        self.samples, self.ahead, self.pinned = samples, ahead, device.type == "cuda"
        self.draws = ahead.draws if ahead else draws
        first = draws(0)
        unlabelled = len(first.unlabelled.item)
        images = len(first.labelled.item) + unlabelled
        largest = int(samples.sizes.prod(axis=1).max())
        room = images * largest + (unlabelled * max(ahead.largest - largest, 0) if ahead else 0)
        self.store = Store(
            pixels=torch.from_numpy(samples.pixels[:0]).new_zeros(room, samples.pixels.shape[1], device=device),
            labels=torch.zeros(images * largest if samples.dense else images, dtype=torch.uint8, device=device),
            start=torch.zeros(images, dtype=torch.int64, device=device),
            size=torch.ones(images, 2, dtype=torch.int64, device=device),
            dense=samples.dense,
            box=torch.ones(images, 4, dtype=torch.int64, device=device) if ahead else None,
        )
        self.thread = ThreadPoolExecutor(1)
        self.next: tuple[int, Future[_Batch]] | None = None
        self.on_its_way: _Batch | None = None

    def ready(self, iteration: int) -> bool:
        """Whether an iteration's images are there; waits a moment for them."""
        if self.next is None or self.next[0] != iteration:
            self.next = iteration, self.thread.submit(self._gather, iteration)
        return bool(wait((self.next[1],), PATIENCE).done)

    def fill(self, iteration: int) -> Draws:
        """The draws of an iteration, with their images in the store."""
        expected, future = self.next or (None, None)
        if future and expected != iteration:
            wait((future,))  # two would be gathered at the same time
        batch = future.result() if future and expected == iteration else self._gather(iteration)
        store = self.store
        places = (store.pixels, store.labels, store.start, store.size, store.box)
        for place, column in zip(places, batch[1:], strict=True):
            if place is not None and column is not None:
                place[: len(column)].copy_(column, non_blocking=True)
        self.on_its_way = batch  # kept while the device fetches it
        self.next = iteration + 1, self.thread.submit(self._gather, iteration + 1)
        return batch.draws

    def close(self) -> None:
        """Ends what is done in advance."""
        if self.ahead is not None:
            self.ahead.close()
        self.thread.shutdown(wait=False, cancel_futures=True)

    def _gather(self, iteration: int) -> _Batch:
        draws, samples = self.draws(iteration), self.samples
        labelled, unlabelled = draws.labelled.item.tolist(), draws.unlabelled.item.tolist()
        parts: list[Part | None] = [None] * len(labelled)
        parts += self.ahead.take(iteration) if self.ahead else [None] * len(unlabelled)
        size, box, pixels = self._laid_out(labelled + unlabelled, parts)
        areas = (box[:, 2:] - box[:, :2]).prod(dim=1)
        labels = (
            self._together(samples.labels, labelled)
            if samples.dense
            else self._pinned(torch.from_numpy(samples.labels[labelled]))
        )
        places = torch.arange(len(size))
        return _Batch(
            draws._replace(
                labelled=draws.labelled._replace(item=places[: len(labelled)]),
                unlabelled=draws.unlabelled._replace(item=places[len(labelled) :]),
            ),
            pixels,
            labels,
            self._pinned(areas.cumsum(0) - areas),
            self._pinned(size),
            self._pinned(box) if self.ahead else None,
        )

    def _laid_out(self, items: list[int], parts: list[Part | None]) -> tuple[Tensor, Tensor, Tensor]:
        """Sizes of images, which part of each is there, and the pixels of those, one after another."""
        sizes = [part.size if part else self.samples.sizes[item] for item, part in zip(items, parts, strict=True)]
        boxes = [part.box if part else (0, 0, *size) for size, part in zip(sizes, parts, strict=True)]
        box = torch.from_numpy(np.array(boxes, dtype=np.int64))
        areas = (box[:, 2:] - box[:, :2]).prod(dim=1).tolist()
        row = self.samples.pixels
        found = torch.from_numpy(row[:0]).new_empty(sum(areas), *row.shape[1:], pin_memory=self.pinned)
        for item, part, into in zip(items, parts, found.split(areas), strict=True):
            if part is None:
                _copy(row, int(self.samples.starts[item]), into.numpy())
            else:
                into.numpy()[:] = part.pixels.reshape(-1, 3)
        return torch.from_numpy(np.array(sizes, dtype=np.int64)), box, found

    def _together(self, row: FlatArray, items: list[int]) -> Tensor:
        """What a row has of some images."""
        areas = self.samples.sizes[items].prod(axis=1).tolist()
        found = torch.from_numpy(row[:0]).new_empty(sum(areas), *row.shape[1:], pin_memory=self.pinned)
        for start, part in zip(self.samples.starts[items].tolist(), found.split(areas), strict=True):
            _copy(row, start, part.numpy())
        return found

    def _pinned(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory() if self.pinned else tensor


def _copy(row: FlatArray, start: int, into: Array) -> None:
    """Fills an array with a row from a place onwards; a row on disk is read straight into it."""
    if isinstance(row, np.ndarray):
        into[:] = row[start : start + len(into)]
    else:
        cast(FlatArrayOnDisk, row).read(start, into)
