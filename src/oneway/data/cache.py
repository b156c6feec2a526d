"""Decoded images on disk, so that every file is decoded once.

For each split, a folder holds all pixels and all labels in one file each, as they lie in memory, and an index: what
each file was when it was decoded, and what its survey showed. A file that has changed or vanished since is noticed, and
nothing trains on changed data unless the user accepts the change. Of several processes that need a split, one decodes
it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from operator import itemgetter
from pathlib import Path

import numpy as np
from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.progress import progress_bar
from oneway.common.terms import SplitName
from oneway.common.words import listed, say
from oneway.config import Data
from oneway.data.check.defects import Surveys, every_item
from oneway.data.check.findings import NAMED, leave_out, left_out_note
from oneway.data.check.survey import Survey, decode_and_survey
from oneway.data.dataset import Item, Listing, Samples
from oneway.data.decode.images import image_size
from oneway.data.index import FORMAT, Index
from oneway.data.rows import OnDisk

PIXELS, LABELS, INDEX = "pixels", "labels", "index.json"
AT_ONCE = 64  # images decoded before the first of them is written: bounds the memory that decoding takes


@dataclass(frozen=True)
class Cache:
    """Where the decoded images of a listing are kept."""

    listing: Listing
    root: Path
    refresh: bool
    skip_unreadable: bool
    console: Console

    @classmethod
    def of(cls, listing: Listing, config: Data, console: Console) -> Cache:
        """The cache of a listing, in the folder that the user chose or else in the user's cache folder."""
        root = config.cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oneway"
        return cls(listing, root, config.refresh, config.skip_unreadable, console)

    def folder(self, split: SplitName) -> Path:
        """Where a split is kept: another place for each choice of files, and for each way to read their labels."""
        listing, root = self.listing, os.path.abspath(self.listing.root)
        reading = (listing.classes, listing.label_coding, listing.reduction, listing.selection.get(split))
        key = blake2b(json.dumps([FORMAT, root, *reading]).encode(), digest_size=8).hexdigest()
        return self.root / f"{os.path.basename(root)}-{key}" / split

    def samples(self, split: SplitName) -> Samples:
        """The decoded images of a split; says what is left out of it."""
        with self._locked(split):
            index = self._current_index(split)
            if left_out := index.surveys_left_out:
                among = len(index.surveys) + len(left_out)
                say(self.console, f"Note: {left_out_note(self.listing, split, left_out, among)}")
            surveys = index.surveys.values()
            pixels, labelled_pixels = index.pixel_counts
            return Samples(
                names=tuple(index.surveys),
                sizes=np.array([survey.size for survey in surveys], dtype=np.int64),
                pixels=OnDisk(self.folder(split) / PIXELS, (pixels, 3)),
                labels=OnDisk(self.folder(split) / LABELS, (labelled_pixels,)),
                labelled=sum(survey.labels is not None for survey in surveys),
                dense=True,
                content=index.content,
            )

    def surveys(self, *splits: SplitName) -> Surveys:
        """The surveys of all items of these splits, by name."""
        found: dict[str, Survey] = {}
        for split in splits:
            with self._locked(split):
                found |= self._current_index(split).surveys
        return found

    @contextmanager
    def _locked(self, split: SplitName) -> Iterator[None]:
        """Lets one process at a time into the block; a process that is killed leaves no lock behind."""
        place = self.folder(split).parent
        try:
            place.mkdir(parents=True, exist_ok=True)
            with (place / f".{split}.lock").open("a") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    say(self.console, "Waiting for another process that decodes these images.")
                    fcntl.flock(file, fcntl.LOCK_EX)
                except OSError:
                    pass  # a file system without locks
                yield
        except OSError as error:
            raise UserError(
                f"{place}: decoded images cannot be kept there ({error.strerror or error}). "
                "Choose another folder with --data.cache."
            ) from error

    def _current_index(self, split: SplitName) -> Index:
        """The index of a split: as it was decoded earlier, if nothing has changed since, or else now."""
        items = self.listing.splits[split]
        if not items:
            purpose = "train on" if split == "train" else f"use as {split}"
            raise UserError(f"{self.listing.root}: has no images to {purpose}.")
        index = self._stored_index(split)
        if index is not None:
            changed = any(index.changed_files(every_item(self.listing)))
            if changed and not self.refresh:
                raise UserError(self._explain_changes(index.made))
            if not changed and index.is_complete_for(items):
                leave_out(self.listing, split, index.surveys_left_out, len(items), self.skip_unreadable)
                return index
            if split != "train" and (note := index.other_names(items)):
                say(self.console, f"Note: {note}")
        self._decode(split, items)
        decoded = self._stored_index(split)
        assert decoded is not None
        return decoded

    def _stored_index(self, split: SplitName) -> Index | None:
        """None where nothing has been decoded, or something has been lost since."""
        index = Index.read(self.folder(split) / INDEX)
        if index is None:
            return None
        pixels, labelled_pixels = index.pixel_counts
        files = [self.folder(split) / name for name in (PIXELS, LABELS)]
        sizes = [file.stat().st_size for file in files if file.is_file()]
        return index if sizes == [3 * pixels, labelled_pixels] else None

    def _explain_changes(self, made: str) -> str:
        """What has changed in all splits."""
        changes = [
            change
            for split in self.listing.splits
            if (index := self._stored_index(split))
            for change in index.changed_files(every_item(self.listing))
        ]
        words = [change for _, change in sorted(changes, key=itemgetter(0))]
        return (
            f"{self.listing.root}: not as it was when it was decoded on {made}: {listed(words, NAMED)}. "
            "Restore what should be there, or accept the change with --data.refresh."
        )

    def _decode(self, split: SplitName, items: Sequence[Item]) -> None:
        """Decodes a split on all cores; it takes its place in the cache when it is complete."""
        target = self.folder(split)
        partial, old = (target.with_name(f".{split}-{os.getpid()}-{kind}") for kind in ("new", "old"))
        _remove(*target.parent.glob(f".{split}-*"))  # of processes that were killed
        try:
            partial.mkdir()
            _require_space(self.listing, items, partial)
            surveys = self._write(items, partial)
            left_out = leave_out(self.listing, split, surveys, len(items), self.skip_unreadable)
            Index.write(partial / INDEX, items, surveys, left_out)
            if target.exists():
                target.rename(old)
            partial.rename(target)
        finally:
            _remove(partial, old)

    def _write(self, items: Sequence[Item], folder: Path) -> dict[str, Survey]:
        """Decodes items into two files, pixels and labels, and returns their surveys by name."""
        surveys: dict[str, Survey] = {}
        with (
            (folder / PIXELS).open("wb") as pixels,
            (folder / LABELS).open("wb") as labels,
            ThreadPoolExecutor(os.cpu_count()) as threads,  # Pillow decodes outside the interpreter's lock
            progress_bar(self.console, "Decoding images", len(items)) as advance,
        ):
            for first in range(0, len(items), AT_ONCE):
                some = items[first : first + AT_ONCE]
                for survey, image, label_map in threads.map(lambda item: decode_and_survey(self.listing, item), some):
                    surveys[survey.name] = survey
                    advance()
                    if image is None or survey.problem:
                        continue
                    pixels.write(np.ascontiguousarray(image).data)
                    if label_map is not None:
                        labels.write(np.ascontiguousarray(label_map).data)
            for file in (pixels, labels):
                file.flush()
                os.fsync(file.fileno())  # before the rename that makes them count
        return surveys


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _require_space(listing: Listing, items: Sequence[Item], folder: Path) -> None:
    """Refuses a disk that is too small before the first image is decoded, not after half of them."""
    needed = 0
    for item in items:
        try:
            height, width = image_size(item.image)
        except UserError:
            continue  # decoding will say what is wrong with it
        needed += height * width * (4 if item.mask else 3) // listing.reduction**2
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder.parent}: {len(items)} decoded images need {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are "
            "free. Choose another folder with --data.cache."
        )
