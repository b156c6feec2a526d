"""What an iteration needs, on the device when it begins: its draws, and the pixels they refer to.

Data that fit into the device's memory lie there from the start. Others stay in the cache on disk, of which the system
keeps in memory what it can; the images of the next batch are brought together while the device computes this one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from oneway.config import Jitter
from oneway.draws import Draws, Plan, draw
from oneway.engine import memory
from oneway.engine.store import Array, FlatArray, FlatArrayOnDisk, Images, Store

SHARE_OF_DEVICE = 0.5
"""Of the device's free memory, at most this much for the data; the rest is for the network's activations."""


Share = Callable[[Draws], Draws]
"""What one of several processes takes of a table of draws."""


@dataclass(frozen=True)
class Feed:
    """A store, and a function from an iteration to its draws; calling it makes the store ready for them."""

    store: Store
    draws: Callable[[int], Draws]
    place: str
    """Where the data are, in words."""


def feed(
    samples: Images, plan: Plan, device: torch.device, jitter: Jitter | None = None, share: Share = lambda d: d
) -> Feed:
    """All data on the device if they take at most half of its free memory; otherwise streamed batch by batch."""
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
    return Feed(window.store, window.fill, "streamed from the cache")


class _Batch(NamedTuple):
    """One iteration's images, brought together in memory that the device can fetch from by itself."""

    draws: Draws  # items are numbered by their places in the batch
    pixels: Tensor
    labels: Tensor
    start: Tensor
    size: Tensor


class _Window:
    def __init__(self, samples: Images, draws: Callable[[int], Draws], device: torch.device) -> None:
        self.samples, self.draws, self.pinned = samples, draws, device.type == "cuda"
        first = draws(0)
        images = len(first.labelled.item) + len(first.unlabelled.item)
        room = images * int(samples.sizes.prod(axis=1).max())
        self.store = Store(
            pixels=torch.from_numpy(samples.pixels[:0]).new_zeros(room, samples.pixels.shape[1], device=device),
            labels=torch.zeros(room if samples.dense else images, dtype=torch.uint8, device=device),
            start=torch.zeros(images, dtype=torch.int64, device=device),
            size=torch.ones(images, 2, dtype=torch.int64, device=device),
            dense=samples.dense,
        )
        self.thread = ThreadPoolExecutor(1)
        self.next: tuple[int, Future[_Batch]] | None = None
        self.on_its_way: _Batch | None = None

    def fill(self, iteration: int) -> Draws:
        """The draws of an iteration, with their images in the store."""
        expected, future = self.next or (None, None)
        batch = future.result() if future and expected == iteration else self._gather(iteration)
        for place, column in zip(
            (self.store.pixels, self.store.labels, self.store.start, self.store.size), batch[1:], strict=True
        ):
            place[: len(column)].copy_(column, non_blocking=True)
        self.on_its_way = batch  # kept while the device fetches it
        self.next = iteration + 1, self.thread.submit(self._gather, iteration + 1)
        return batch.draws

    def _gather(self, iteration: int) -> _Batch:
        draws, samples = self.draws(iteration), self.samples
        items = torch.cat((draws.labelled.item, draws.unlabelled.item)).tolist()
        labelled = items[: len(draws.labelled.item)]
        size = torch.from_numpy(samples.sizes[items])
        areas = size.prod(dim=1)
        labels = (
            self._together(samples.labels, labelled)
            if samples.dense
            else self._pinned(torch.from_numpy(samples.labels[labelled]))
        )
        places = torch.arange(len(items))
        return _Batch(
            draws._replace(
                labelled=draws.labelled._replace(item=places[: len(labelled)]),
                unlabelled=draws.unlabelled._replace(item=places[len(labelled) :]),
            ),
            self._together(samples.pixels, items),
            labels,
            self._pinned(areas.cumsum(0) - areas),
            self._pinned(size),
        )

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
