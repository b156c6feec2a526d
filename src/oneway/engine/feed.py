"""What an iteration needs, on the device when it begins: its draws, and the pixels they refer to.

Data that fit into the device's memory lie there from the start. Others stay in the cache on disk, of which the system
keeps in memory what it can; the images of the next batch are brought together while the device computes this one. Those
of a pool are decoded some batches ahead, and only what their crops are made of is kept.
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
from oneway.engine.boxes import Box, CropDraw, Cropping, most_needed, needed_box
from oneway.engine.store import Array, Choose, FlatArray, FlatArrayOnDisk, ImageRegion, Images, Pool, Store
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
    return streamed(samples, plan, device, share, jitter)


def resident(samples: Images, plan: Plan, device: torch.device, share: Share = lambda d: d) -> Feed:
    """All data on the device."""
    place = "in GPU memory" if device.type == "cuda" else "in memory"
    return Feed(Store.hold(samples, device), lambda iteration: share(draw(plan, iteration)), place)


def streamed(
    samples: Images, plan: Plan, device: torch.device, share: Share = lambda d: d, jitter: Jitter | None = None
) -> Feed:
    """A batch at a time on the device, in a store that stays in place and is filled anew for every iteration.

    Where it is known how crops are made, only what they are made of is sent there.
    """
    cut = _Cut(jitter, plan) if jitter is not None and jitter.crop is not None and samples.dense else None
    window = _Window(samples, lambda iteration: share(draw(plan, iteration)), device, cut)
    return Feed(window.store, window.fill, "streamed from the cache", close=window.close)


def pooled(
    samples: Images, pool: Pool, plan: Plan, device: torch.device, jitter: Jitter, share: Share = lambda d: d
) -> Feed:
    """As `streamed`, with images of a pool among those without labels."""

    def draws(iteration: int) -> Draws:
        return share(draw(plan, iteration))

    cut = _Cut(jitter, plan)
    window = _Window(samples, draws, device, cut, _Ahead(pool, len(samples.sizes), draws, plan.seed, cut))
    return Feed(window.store, window.fill, "streamed from cache and pool", window.ready, window.close)


class _Cut:
    """Finds the part of an image that its crops are made of."""

    def __init__(self, jitter: Jitter, plan: Plan) -> None:
        assert jitter.crop is not None
        self.cropping = Cropping(jitter.crop, jitter.padding, jitter.beyond == "mirror", CELL)
        self.most_labelled, self.most = (
            most_needed(plan.scale[0], jitter.crop, pairs) for pairs in (False, plan.needs_pairs)
        )
        """Pixels of such a part."""

    def choosers(self, draws: CropDraws, overlap: OverlapDraws | None = None) -> list[Choose]:
        """A function of the height and width of each image that is drawn."""
        columns = (column.tolist() for column in (draws.scale, draws.top, draws.left, draws.flip))
        shifts = repeat(None) if overlap is None else map(tuple, overlap.shift.tolist())
        drawn = map(CropDraw, *columns, shifts)
        return [partial(needed_box, draw=each, cropping=self.cropping) for each in drawn]


class _Ahead:
    """Has the images of iterations to come decoded."""

    def __init__(self, pool: Pool, first: int, draws: Callable[[int], Draws], seed: int, cut: _Cut) -> None:
        self.pool, self.first, self.cut, self._draw = pool, first, cut, draws
        self.batch = len(draws(0).unlabelled.item)
        self.depth = BATCHES_AHEAD + math.ceil(pool.workers / self.batch)
        # Those of one more iteration are still being copied while others are decoded.
        self.decoders = pool.decoders(seed, (self.depth + 1) * self.batch, cut.most)
        self.coming: dict[int, Draws] = {}

    def draws(self, iteration: int) -> Draws:
        """Those of an iteration; it and those that follow are on their way then."""
        wanted = range(iteration, iteration + self.depth)
        self.coming = {other: draws for other, draws in self.coming.items() if other in wanted}
        for other in wanted:
            if other not in self.coming:
                draws = self.coming[other] = self._draw(other)
                choosers = self.cut.choosers(draws.unlabelled, draws.overlap)
                for slot, item, choose in zip(
                    self._slots(other), draws.unlabelled.item.tolist(), choosers, strict=True
                ):
                    if item >= self.first:
                        self.decoders.begin(slot, item - self.first, choose)
        return self.coming[iteration]

    def take(self, iteration: int) -> list[ImageRegion | None]:
        """The images of an iteration without labels; None for those that are none of the pool's."""
        items = self.coming.pop(iteration).unlabelled.item.tolist()
        pairs = zip(self._slots(iteration), items, strict=True)
        return [self.decoders.result(slot) if item >= self.first else None for slot, item in pairs]

    def close(self) -> None:
        """Ends without waiting for what is read."""
        self.pool.close()
        self.decoders.close()

    def _slots(self, iteration: int) -> range:
        first = iteration % (self.depth + 1) * self.batch
        return range(first, first + self.batch)


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
        self,
        samples: Images,
        draws: Callable[[int], Draws],
        device: torch.device,
        cut: _Cut | None = None,
        ahead: _Ahead | None = None,
    ) -> None:
        self.samples, self.cut, self.ahead, self.pinned = samples, cut, ahead, device.type == "cuda"
        self.draws = ahead.draws if ahead else draws
        first = draws(0)
        labelled, unlabelled = len(first.labelled.item), len(first.unlabelled.item)
        images = labelled + unlabelled
        whole = int(samples.sizes.prod(axis=1).max())
        largest = min(whole, cut.most_labelled) if cut else whole
        largest_unlabelled = cut.most if cut and ahead else min(whole, cut.most) if cut else whole
        room = labelled * largest + unlabelled * largest_unlabelled
        self.store = Store(
            pixels=torch.from_numpy(samples.pixels[:0]).new_zeros(room, samples.pixels.shape[1], device=device),
            labels=torch.zeros(labelled * largest if samples.dense else images, dtype=torch.uint8, device=device),
            start=torch.zeros(images, dtype=torch.int64, device=device),
            size=torch.ones(images, 2, dtype=torch.int64, device=device),
            dense=samples.dense,
            box=torch.ones(images, 4, dtype=torch.int64, device=device) if cut else None,
        )
        self.landing: list[Tensor] = []
        if self.pinned:
            self.landing = [torch.empty_like(place) for place in _columns(self.store)]
            self.stream, self.landed = torch.cuda.Stream(device), torch.cuda.Event()
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
        self._send(batch)
        self.on_its_way = batch  # kept while the device fetches it
        self.next = iteration + 1, self.thread.submit(self._gather, iteration + 1)
        return batch.draws

    def _send(self, batch: _Batch) -> None:
        """Into the store; a GPU fetches it while it computes with what is there, and then takes a short way."""
        sent = [column for column in batch[1:] if column is not None]
        places = [place[: len(column)] for place, column in zip(_columns(self.store), sent, strict=True)]
        if self.landing:
            landing = [place[: len(column)] for place, column in zip(self.landing, sent, strict=True)]
            here, aside = torch.cuda.current_stream(), self.stream
            aside.wait_event(self.landed)
            with torch.cuda.stream(aside):
                _copy_all(sent, landing)
            here.wait_stream(aside)
            _copy_all(landing, places)
            self.landed.record(here)
        else:
            _copy_all(sent, places)

    def close(self) -> None:
        """Ends what is done in advance."""
        if self.ahead is not None:
            self.ahead.close()
        self.thread.shutdown(wait=False, cancel_futures=True)

    def _gather(self, iteration: int) -> _Batch:
        draws, samples = self.draws(iteration), self.samples
        labelled, unlabelled = draws.labelled.item.tolist(), draws.unlabelled.item.tolist()
        parts: list[ImageRegion | None] = [None] * len(labelled)
        parts += self.ahead.take(iteration) if self.ahead else [None] * len(unlabelled)
        items = labelled + unlabelled
        sizes = [part.size if part else _size(samples, item) for item, part in zip(items, parts, strict=True)]
        choosers: list[Choose] = [_whole] * len(items)
        if self.cut is not None:
            choosers = self.cut.choosers(draws.labelled) + self.cut.choosers(draws.unlabelled, draws.overlap)
        boxes = [part.box if part else choose(size) for choose, size, part in zip(choosers, sizes, parts, strict=True)]
        size, box = (torch.from_numpy(np.array(each, dtype=np.int64)) for each in (sizes, boxes))
        pixels = self._together(samples.pixels, items, boxes, parts)
        areas = (box[:, 2:] - box[:, :2]).prod(dim=1)
        labels = (
            self._together(samples.labels, labelled, boxes[: len(labelled)])
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
            self._pinned(box) if self.cut else None,
        )

    def _together(
        self, row: FlatArray, items: list[int], boxes: list[Box], parts: Sequence[ImageRegion | None] | None = None
    ) -> Tensor:
        """What a row has of parts of some images, or what is there of them already, one after another."""
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
    """As a batch has them."""
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
    """Fills an array with a part of an image that begins at a place of a row; whole lines are read straight into it."""
    top, left, bottom, right = box
    begin, end, whole_lines = start + top * width, start + bottom * width, right - left == width
    if whole_lines and not isinstance(row, np.ndarray):
        cast(FlatArrayOnDisk, row).read(begin, into)
    else:
        lines = row[begin:end].reshape(bottom - top, width, -1)
        into.reshape(bottom - top, right - left, -1)[:] = lines[:, left:right]
