"""The data set that a configuration names."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path

import numpy as np
from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE, SplitName
from oneway.config import Data
from oneway.data import moons, streets
from oneway.data.cache import Cache
from oneway.data.cache.unpack import unpacked
from oneway.data.check import apply_rules, refuse_errors, summarise
from oneway.data.check.pool import refuse_broken
from oneway.data.dataset import NO_RUN, NOTHING, Dataset, Known, Listing, Samples
from oneway.data.decode.images import GDAL
from oneway.data.folder import FILE, list_folder
from oneway.data.image_style import COLOURS
from oneway.data.pool import Pool, is_pool, open_pool_beside
from oneway.data.published import (
    cifar10,
    list_ade20k,
    list_camvid,
    list_cityscapes,
    list_coco_stuff,
    list_voc,
    with_further_images,
)

STREETS_VALIDATION_IMAGES = 100
QUIET = Console(quiet=True)


def load(config: Data, console: Console = QUIET, all_validate: bool = False, known: Known = NO_RUN) -> Dataset:
    """The data set a configuration names; decoding shows its progress on the console. See `list_files` for the rest."""
    if config.name in READERS:
        return READERS[config.name](config)
    before, typed = time.time(), config.unlabelled
    config = unpacked(config, console)
    listing = list_files(config, all_validate, known)
    files = _Files(listing, config, console, before, str(typed))
    return Dataset(
        classes=listing.classes,
        colours=listing.colours,
        read=files.read,
        review=files.review,
        masks=listing.masks,
        paths={item.name: item.image for item in listing.train},
        digests=files.digests,
        shown=files.shown,
        image_style=listing.image_style,
        reduction=listing.reduction,
        read_as=listing.read_as,
        predicted=frozenset(item.name for item in listing.items if item.predicted),
    )


def list_files(config: Data, all_validate: bool = False, known: Known = NO_RUN) -> Listing:
    """The files of a data set that is read file by file; `known` is what a run has decided.

    With `all_validate`, all labelled images of a folder without a validation set validate, and not only a share.

    Raises:
        UserError: Files are missing, or make no data set; says which, and the way out.
    """
    config = unpacked(config, QUIET)
    pool = has_pool(config)
    further = None if pool or config.unlabelled is None else Path(config.unlabelled)
    if config.name in LISTERS:
        listing = with_further_images(LISTERS[config.name](config), further)
    elif config.path is None:
        raise UserError(
            "Which folder? Give it, or a zip file of it, with --data DIR: images, and masks for some of them."
        )
    else:
        listing = list_folder(config.path, further, config.holdout, config.seed, all_validate, config.reduction, known)
    if not listing.val and (config.name != "folder" or config.holdout):  # asked for there, and nowhere else
        raise UserError(f"{listing.root}: no image validates, and no score would be known. Unpack the data again.")
    if pool and listing.image_style != COLOURS:
        raise UserError(
            f"{config.unlabelled}: images of a pool are used in their colours, and {listing.root} asks for "
            f"{listing.image_style}. Use --data.pool never, or save three bands of 8 bits: {GDAL}"
        )
    return replace(listing, unlabelled=config.unlabelled) if pool else listing


def has_pool(config: Data) -> bool:
    """Whether further images are not decoded into the cache with the others."""
    return config.unlabelled is not None and is_pool(config.unlabelled, config.pool)


LISTERS: dict[str, Callable[[Data], Listing]] = {
    "camvid": lambda config: list_camvid(config.path, config.holdout_drive),
    "cityscapes": lambda config: list_cityscapes(config.path, config.resolution, config.coarse),
    "voc": lambda config: list_voc(config.path),
    "ade20k": lambda config: list_ade20k(config.path),
    "coco-stuff": lambda config: list_coco_stuff(config.path),
}
"""Published data sets, whose files are listed by their names; a UserError says what is missing, and was looked for."""


class _Files:
    """A data set that is read file by file."""

    def __init__(self, listing: Listing, config: Data, console: Console, listed_after: float, pool_name: str) -> None:
        self.listing, self.config, self.console, self.pool_name = listing, config, console, pool_name
        self.cache = Cache(listing, config, console, listed_after)

    @cached_property
    def pool(self) -> Pool | None:
        if not has_pool(self.config):
            return None
        pool = open_pool_beside(self.listing, self.config, self.console)
        pool.source = pool.source._replace(name=self.pool_name)  # a video by its name, not by its frames' folder
        return pool

    def read(self, split: SplitName) -> Samples:
        if split == "val" and not self.listing.val:
            return NOTHING
        if split == "test" and not self.listing.test:
            raise UserError(
                f"{self.listing.root}: no test images with labels are known. Put them into a folder `test` beside that "
                f"of training, name them in {FILE}, as in `test: {{images: test/images, masks: test/masks}}`, or put "
                "them into a folder of their own, and name it with --data."
            )
        samples = self.cache.samples(split)
        return replace(samples, pool=self.pool) if split == "train" and self.pool is not None else samples

    def review(self) -> list[str]:
        splits: list[SplitName] = ["train", "val"] if self.listing.val else ["train"]
        findings = apply_rules(self.listing, self.cache.surveys(*splits))
        refuse_errors(findings, self.listing)
        if self.pool is not None:
            refuse_broken(self.pool)
        return [*self.listing.remarks, *summarise(findings)]

    def digests(self, split: SplitName) -> dict[str, str]:
        return {name: survey.digest for name, survey in self.cache.surveys(split).items()}

    def shown(self) -> dict[str, set[int]]:
        return {name: {*(survey.labels or ())} - {IGNORE} for name, survey in self.cache.surveys("train").items()}


@lru_cache(maxsize=2)  # a comparison reads the same scenes for each of its runs, and for its report
def _render_streets(size: tuple[int, int], training_images: int, split: SplitName) -> Samples:
    series, count = {"train": (0, training_images), "val": (1, STREETS_VALIDATION_IMAGES)}[split]
    images, labels = zip(*(streets.render(series, index, *size) for index in range(count)), strict=True)
    return Samples.stacked(_names(split, count), np.stack(images), np.stack(labels))


def _read_cifar10(path: Path | None, split: SplitName) -> Samples:
    images, labels = cifar10.read(path, split)
    return Samples.stacked(_names(split, len(images)), images, labels)


def _draw_moons(seed: int, split: SplitName) -> Samples:
    points, labels = moons.points(seed)
    part = slice(moons.TRAINING_POINTS) if split == "train" else slice(moons.TRAINING_POINTS, None)
    return Samples.stacked(_names(split, len(labels[part])), points[part], labels[part])


def _names(split: SplitName, count: int) -> tuple[str, ...]:
    return tuple(f"{split}-{index:05d}" for index in range(count))


READERS: dict[str, Callable[[Data], Dataset]] = {
    "streets": lambda config: Dataset(
        streets.CLASSES, streets.COLOURS, partial(_render_streets, config.size, config.images)
    ),
    "cifar10": lambda config: Dataset(cifar10.CLASSES, (), partial(_read_cifar10, config.path)),
    "moons": lambda config: Dataset(moons.CLASSES, moons.COLOURS, partial(_draw_moons, config.seed)),
}
"""Data sets that are made by code, or read as a whole; they have no test split."""
