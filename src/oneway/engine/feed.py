"""Feeding the device: the draws of an iteration, and the pixels they refer to, are there when it begins.

Data that fit into the device's memory are copied there once. Others stay in the cache on disk, which the system keeps
in memory as far as it can; the next batch is gathered while the device computes. Images of a pool are prefetched
several batches ahead, and only the regions that crops need are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from oneway.config import Jitter
from oneway.draws import CropDraws, Draws, OverlapDraws, Plan, draw
from oneway.engine import memory
from oneway.engine.regions import Box, CropDraw, Cropping, most_needed, needed_region
from oneway.engine.store import Array, Choose, FlatArray, FlatArrayOnDisk, ImageRegion, Images, Pool, Store
from oneway.models.projector import CELL

SHARE_OF_DEVICE = 0.5
"""The most of the device's free memory that the data may take; the rest is for activations."""

BATCHES_AHEAD = 3
"""The least number of batches that a pool prefetches: some images take longer to decode than others."""

PATIENCE = 0.5
"""Seconds that `Feed.ready` waits at most."""

Share = Callable[[Draws], Draws]
"""A function from a table of draws to the rows of one process."""


@dataclass(frozen=True)
class Feed:
    """A store, and a function from an iteration to its draws, which also fills the store with their images."""

    store: Store
    draws: Callable[[int], Draws]
    place: str
    """Where the data are, for a message."""

    ready: Callable[[int], bool] = lambda iteration: True
    """Whether `draws` would return at once for an iteration; waits up to `PATIENCE` for it."""

    close: Callable[[], None] = lambda: None
    """Stop prefetching."""


def feed(
    samples: Images, plan: Plan, device: torch.device, jitter: Jitter | None = None, share: Share = lambda d: d
) -> Feed:
    """All data on the device if they take at most half of its free memory; otherwise streamed batch by batch.

    Args:
        samples: The images.
        plan: The plan of the draws.
        device: The device that trains.
        jitter: The settings of crops, from which the needed region of an image follows.
        share: Selects the rows of this process from a table of draws.
    """
    there = device.type == "cpu" and isinstance(samples.pixels, np.ndarray)
    needed = samples.pixels.nbytes + samples.labels.nbytes
    fits = there or needed <= SHARE_OF_DEVICE * (memory.available(device) or 0)
    if fits and not (samples.pool is not None and plan.batch_unlabelled):
        return resident(samples, plan, device, share)
    return streamed(samples, plan, device, jitter, share)


def resident(samples: Images, plan: Plan, device: torch.device, share: Share = lambda d: d) -> Feed:
    """All data on the device."""
    place = "in GPU memory" if device.type == "cuda" else "in memory"
    return Feed(Store.hold(samples, device), lambda iteration: share(draw(plan, iteration)), place)


def streamed(
    samples: Images, plan: Plan, device: torch.device, jitter: Jitter | None = None, share: Share = lambda d: d
) -> Feed:
    """One batch at a time on the device, in a store that stays in place and is refilled for every iteration.

    With the settings of crops, only the regions that they need are copied. A pool needs these settings.
    """

    def draws(iteration: int) -> Draws:
        return share(draw(plan, iteration))

    finder = _RegionFinder(jitter, plan) if jitter is not None and jitter.crop is not None and samples.dense else None
    prefetcher, place = None, "streamed from the cache"
    if samples.pool is not None and plan.batch_unlabelled:
        assert finder is not None
        prefetcher = _Prefetcher(samples.pool, len(samples.sizes), draws, plan.seed, finder)
        place = "streamed from cache and pool"
    window = _Window(samples, draws, device, finder, prefetcher)
    return Feed(window.store, window.fill, place, window.ready, window.close)


class _RegionFinder:
    """Finds the region of an image that its crops need."""

    def __init__(self, jitter: Jitter, plan: Plan) -> None:
        assert jitter.crop is not None
        self.cropping = Cropping(jitter.crop, jitter.padding, jitter.beyond == "mirror", CELL)
        self.most_labelled, self.most = (
            most_needed(plan.scale[0], jitter.crop, pairs) for pairs in (False, plan.needs_pairs)
        )
        """The most pixels of such a region."""

    def choosers(self, draws: CropDraws, overlap: OverlapDraws | None = None) -> list[Choose]:
        """For each image of the draws, the function from its height and width to the region it needs."""
        columns = (column.tolist() for column in (draws.scale, draws.top, draws.left, draws.flip))
        shifts = repeat(None) if overlap is None else map(tuple, overlap.shift.tolist())
        drawn = map(CropDraw, *columns, shifts)
        return [partial(needed_region, draw=each, cropping=self.cropping) for each in drawn]


class _Prefetcher:
    """Prefetches the pool's images of the next iterations."""

    def __init__(self, pool: Pool, first: int, draws: Callable[[int], Draws], seed: int, finder: _RegionFinder) -> None:
        self.pool, self.first, self.finder, self._draw = pool, first, finder, draws
        self.batch = len(draws(0).unlabelled.item)
        self.depth = BATCHES_AHEAD + math.ceil(pool.workers / self.batch)
        # One more batch of slots: the images of one iteration are copied while later ones are decoded.
        self.decoders = pool.decoders(seed, (self.depth + 1) * self.batch, finder.most)
        self.coming: dict[int, Draws] = {}

    def draws(self, iteration: int) -> Draws:
        """The draws of an iteration; starts decoding the images of it and of the next ones."""
        wanted = range(iteration, iteration + self.depth)
        self.coming = {other: draws for other, draws in self.coming.items() if other in wanted}
        for other in wanted:
            if other not in self.coming:
                draws = self.coming[other] = self._draw(other)
                choosers = self.finder.choosers(draws.unlabelled, draws.overlap)
                for slot, item, choose in zip(
                    self._slots(other), draws.unlabelled.item.tolist(), choosers, strict=True
                ):
                    if item >= self.first:
                        self.decoders.begin(slot, item - self.first, choose)
        return self.coming[iteration]

    def take(self, iteration: int) -> list[ImageRegion | None]:
        """The unlabelled images of an iteration; None for images that are not of the pool."""
        items = self.coming.pop(iteration).unlabelled.item.tolist()
        pairs = zip(self._slots(iteration), items, strict=True)
        return [self.decoders.result(slot) if item >= self.first else None for slot, item in pairs]

    def close(self) -> None:
        """Stop without waiting for pending reads."""
        self.pool.close()
        self.decoders.close()

    def _slots(self, iteration: int) -> range:
        first = iteration % (self.depth + 1) * self.batch
        return range(first, first + self.batch)


class _Batch(NamedTuple):
    """One iteration's images, gathered in pinned memory where the device is a GPU."""

    draws: Draws  # items are numbered by their places in the batch
    pixels: Tensor
    labels: Tensor
    start: Tensor
    size: Tensor
    box: Tensor | None


class _Window:
    def __init__(
        self,
        samples: Images,
        draws: Callable[[int], Draws],
        device: torch.device,
        finder: _RegionFinder | None = None,
        prefetcher: _Prefetcher | None = None,
    ) -> None:
        self.samples, self.finder, self.prefetcher, self.pinned = samples, finder, prefetcher, device.type == "cuda"
        self.draws = prefetcher.draws if prefetcher else draws
        first = draws(0)
        labelled, unlabelled = len(first.labelled.item), len(first.unlabelled.item)
        images = labelled + unlabelled
        whole = int(samples.sizes.prod(axis=1).max())
        largest = min(whole, finder.most_labelled) if finder else whole
        largest_unlabelled = min(whole, finder.most) if finder else whole
        if finder and prefetcher:
            largest_unlabelled = finder.most  # images of the pool may be larger than those of the cache
        room = labelled * largest + unlabelled * largest_unlabelled
        self.store = Store(
            pixels=torch.from_numpy(samples.pixels[:0]).new_zeros(room, samples.pixels.shape[1], device=device),
            labels=torch.zeros(labelled * largest if samples.dense else images, dtype=torch.uint8, device=device),
            start=torch.zeros(images, dtype=torch.int64, device=device),
            size=torch.ones(images, 2, dtype=torch.int64, device=device),
            dense=samples.dense,
            box=torch.ones(images, 4, dtype=torch.int64, device=device) if finder else None,
        )
        self.landing: list[Tensor] = []
        if self.pinned:
            self.landing = [torch.empty_like(place) for place in _columns(self.store)]
            self.stream, self.landed = torch.cuda.Stream(device), torch.cuda.Event()
        self.thread = ThreadPoolExecutor(1)
        self.next: tuple[int, Future[_Batch]] | None = None
        self.on_its_way: _Batch | None = None

    def ready(self, iteration: int) -> bool:
        """Whether an iteration's images are gathered; waits up to `PATIENCE` for them."""
        if self.next is None or self.next[0] != iteration:
            self.next = iteration, self.thread.submit(self._gather, iteration)
        return bool(wait((self.next[1],), PATIENCE).done)

    def fill(self, iteration: int) -> Draws:
        """The draws of an iteration, with their images in the store."""
        expected, future = self.next or (None, None)
        if future and expected != iteration:
            wait((future,))  # two would be gathered at the same time
        batch = future.result() if future and expected == iteration else self._gather(iteration)
        self._send(batch)
        self.on_its_way = batch  # kept while the device fetches it
        self.next = iteration + 1, self.thread.submit(self._gather, iteration + 1)
        return batch.draws

    def _send(self, batch: _Batch) -> None:
        """Copy a batch to the store; on a GPU by way of a landing buffer, while it computes the previous batch."""
        sent = [column for column in batch[1:] if column is not None]
        places = [place[: len(column)] for place, column in zip(_columns(self.store), sent, strict=True)]
        if self.landing:
            landing = [place[: len(column)] for place, column in zip(self.landing, sent, strict=True)]
            here, copying = torch.cuda.current_stream(), self.stream
            copying.wait_event(self.landed)
            with torch.cuda.stream(copying):
                _copy_all(sent, landing)
            here.wait_stream(copying)
            _copy_all(landing, places)
            self.landed.record(here)
        else:
            _copy_all(sent, places)

    def close(self) -> None:
        """Stop prefetching."""
        if self.prefetcher is not None:
            self.prefetcher.close()
        self.thread.shutdown(wait=False, cancel_futures=True)

    def _gather(self, iteration: int) -> _Batch:
        draws, samples = self.draws(iteration), self.samples
        labelled, unlabelled = draws.labelled.item.tolist(), draws.unlabelled.item.tolist()
        parts: list[ImageRegion | None] = [None] * len(labelled)
        parts += self.prefetcher.take(iteration) if self.prefetcher else [None] * len(unlabelled)
        items = labelled + unlabelled
        sizes = [part.size if part else _size(samples, item) for item, part in zip(items, parts, strict=True)]
        choosers: list[Choose] = [_whole] * len(items)
        if self.finder is not None:
            choosers = self.finder.choosers(draws.labelled) + self.finder.choosers(draws.unlabelled, draws.overlap)
        boxes = [part.box if part else choose(size) for choose, size, part in zip(choosers, sizes, parts, strict=True)]
        size, box = (torch.from_numpy(np.array(each, dtype=np.int64)) for each in (sizes, boxes))
        pixels = self._concatenate(samples.pixels, items, boxes, parts)
        areas = (box[:, 2:] - box[:, :2]).prod(dim=1)
        labels = (
            self._concatenate(samples.labels, labelled, boxes[: len(labelled)])
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
            self._pinned(box) if self.finder else None,
        )

    def _concatenate(
        self, row: FlatArray, items: list[int], boxes: list[Box], parts: Sequence[ImageRegion | None] | None = None
    ) -> Tensor:
        """The regions of some images, from a flat array or already decoded, concatenated."""
        areas = [(bottom - top) * (right - left) for top, left, bottom, right in boxes]
        found = torch.from_numpy(row[:0]).new_empty(sum(areas), *row.shape[1:], pin_memory=self.pinned)
        for item, box, part, into in zip(items, boxes, parts or [None] * len(items), found.split(areas), strict=True):
            if part is None:
                _copy(row, int(self.samples.starts[item]), int(self.samples.sizes[item, 1]), box, into.numpy())
            else:
                into.numpy()[:] = part.pixels.reshape(-1, 3)
        return found

    def _pinned(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory() if self.pinned else tensor


def _columns(store: Store) -> list[Tensor]:
    """The tensors of a store, in the order of a `_Batch`."""
    columns = (store.pixels, store.labels, store.start, store.size, store.box)
    return [column for column in columns if column is not None]


def _copy_all(columns: list[Tensor], into: list[Tensor]) -> None:
    for column, place in zip(columns, into, strict=True):
        place.copy_(column, non_blocking=True)


def _whole(size: tuple[int, int]) -> Box:
    return 0, 0, *size


def _size(samples: Images, item: int) -> tuple[int, int]:
    height, width = samples.sizes[item].tolist()
    return height, width


def _copy(row: FlatArray, start: int, width: int, box: Box, into: Array) -> None:
    """Fill an array with a region of the image at `start` in a flat array; whole lines are read directly into it."""
    top, left, bottom, right = box
    begin, end, whole_lines = start + top * width, start + bottom * width, right - left == width
    if whole_lines and not isinstance(row, np.ndarray):
        cast(FlatArrayOnDisk, row).read(begin, into)
    else:
        lines = row[begin:end].reshape(bottom - top, width, -1)
        into.reshape(bottom - top, right - left, -1)[:] = lines[:, left:right]
