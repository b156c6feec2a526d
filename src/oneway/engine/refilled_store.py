"""A store with room for one batch, which stays in place on the device and is refilled for every iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from oneway.draws import Draws
from oneway.engine.prefetch import Prefetcher, RegionFinder
from oneway.engine.regions import Box
from oneway.engine.store import Array, Choose, FlatArray, FlatArrayOnDisk, ImageRegion, Images, Store

PATIENCE = 0.5
"""Seconds that `RefilledStore.ready` waits at most."""


class Batch(NamedTuple):
    """One iteration's images, gathered in pinned memory where the device is a GPU."""

    draws: Draws  # items are numbered by their places in the batch
    pixels: Tensor
    labels: Tensor
    start: Tensor
    size: Tensor
    box: Tensor | None


class RefilledStore:
    """A store of one batch at a time: the next one is gathered by a thread while the device computes."""

    def __init__(
        self,
        samples: Images,
        draws: Callable[[int], Draws],
        device: torch.device,
        finder: RegionFinder | None,
        prefetcher: Prefetcher | None,
    ) -> None:
        self.samples, self.finder, self.prefetcher, self.on_gpu = samples, finder, prefetcher, device.type == "cuda"
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
        if self.on_gpu:
            self.landing = [torch.empty_like(place) for place in _columns(self.store)]
            self.stream, self.landed = torch.cuda.Stream(device), torch.cuda.Event()
        self.thread = ThreadPoolExecutor(1)
        self.next: tuple[int, Future[Batch]] | None = None
        self.on_its_way: Batch | None = None

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

    def _send(self, batch: Batch) -> None:
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

    def _gather(self, iteration: int) -> Batch:
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
        return Batch(
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
        found = torch.from_numpy(row[:0]).new_empty(sum(areas), *row.shape[1:], pin_memory=self.on_gpu)
        for item, box, part, into in zip(items, boxes, parts or [None] * len(items), found.split(areas), strict=True):
            if part is None:
                copy_region(row, int(self.samples.starts[item]), int(self.samples.sizes[item, 1]), box, into.numpy())
            else:
                into.numpy()[:] = part.pixels.reshape(-1, 3)
        return found

    def _pinned(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory() if self.on_gpu else tensor


def _columns(store: Store) -> list[Tensor]:
    """The tensors of a store, in the order of a `Batch`."""
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


def copy_region(row: FlatArray, start: int, width: int, box: Box, into: Array) -> None:
    """Fill an array with a region of the image at `start` in a flat array; whole lines are read directly into it."""
    top, left, bottom, right = box
    begin, end, whole_lines = start + top * width, start + bottom * width, right - left == width
    if whole_lines and not isinstance(row, np.ndarray):
        cast(FlatArrayOnDisk, row).read(begin, into)
    else:
        lines = row[begin:end].reshape(bottom - top, width, -1)
        into.reshape(bottom - top, right - left, -1)[:] = lines[:, left:right]
