"""Feeding the device: the draws of an iteration, and the pixels they refer to, are there when it begins.

Data that fit into the device's memory are copied there once. Others stay in the cache on disk, which the system keeps
in memory as far as it can; the next batch is gathered while the device computes. Images of a pool are prefetched
several batches ahead, and only the regions that crops need are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from oneway.config import Jitter
from oneway.draws import Draws, Plan, draw
from oneway.engine import memory
from oneway.engine.prefetch import Prefetcher, RegionFinder
from oneway.engine.refilled_store import RefilledStore
from oneway.engine.store import Images, Store

SHARE_OF_DEVICE = 0.5
"""The most of the device's free memory that the data may take; the rest is for activations."""

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
    """Whether `draws` would return at once for an iteration; may wait a moment for it."""

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

    finder = RegionFinder(jitter, plan) if jitter is not None and jitter.crop is not None and samples.dense else None
    prefetcher, place = None, "streamed from the cache"
    if samples.pool is not None and plan.batch_unlabelled:
        assert finder is not None
        prefetcher = Prefetcher(samples.pool, len(samples.sizes), draws, plan.seed, finder)
        place = "streamed from cache and pool"
    refilled = RefilledStore(samples, draws, device, finder, prefetcher)
    return Feed(refilled.store, refilled.fill, place, refilled.ready, refilled.close)
