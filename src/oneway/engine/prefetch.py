"""Images of a pool are decoded several batches ahead; of each, only the region that its crops need is kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import repeat

from oneway.config import Jitter
from oneway.draws import CropDraws, Draws, OverlapDraws, Plan
from oneway.engine.regions import CropDraw, Cropping, most_needed, needed_region
from oneway.engine.store import Choose, ImageRegion, Pool
from oneway.models.projector import CELL

BATCHES_AHEAD = 3
"""The least number of batches that a pool prefetches: some images take longer to decode than others."""


class RegionFinder:
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


class Prefetcher:
    """Prefetches the pool's images of the next iterations."""

    def __init__(self, pool: Pool, first: int, draws: Callable[[int], Draws], seed: int, finder: RegionFinder) -> None:
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
