"""Decoded images on disk, so that every file is decoded once.

For each split, a folder holds all pixels and all labels in one file each, as they lie in memory, and an index: what
each file was when it was decoded, and what its survey showed. A file that has changed or vanished since is noticed, and
nothing trains on changed data unless the user accepts the change. Decoded images are checked as they are read; what is
damaged is decoded again. Of several processes that need a split, one decodes it.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from operator import itemgetter
from pathlib import Path

import numpy as np
from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.progress import progress_bar
from oneway.common.terms import SplitName
from oneway.common.threads import in_threads
from oneway.common.words import in_bytes, listed, say
from oneway.config import Data
from oneway.data.cache.index import Index, Record, UnusableIndex
from oneway.data.cache.locked import ANOTHER_CACHE, cache_root, locked, new_folder
from oneway.data.cache.rows import AGAIN, OnDisk, Originals, checksum
from oneway.data.cache.stamps import Stamp, changed_files, stamp_files
from oneway.data.check.findings import NAMED, leave_out, left_out_note
from oneway.data.check.rules.interface import Surveys
from oneway.data.check.survey import Survey, decode_and_survey
from oneway.data.dataset import Bytes, Item, Listing, Samples
from oneway.data.decode.images import image_size
from oneway.data.image_style import COLOURS

PIXELS, LABELS, INDEX = "pixels", "labels", "index.json"
PLACES = 2  # another number gives all folders other names; what older versions left there stays for ever
LONGEST = 50  # characters of the name of a data folder; more and the key could be too long for a disk
ATTEMPTS = 3  # to decode an image that is replaced meanwhile


@dataclass(frozen=True)
class Cache:
    """Where the decoded images of a listing are kept."""

    listing: Listing
    config: Data
    console: Console
    listed_after: float = float("inf")
    """The time before the files were listed, by which outlines are older that were read then."""

    indexes: dict[SplitName, tuple[Index, tuple[int, ...]]] = field(default_factory=dict, repr=False)
    """The indexes that have been read, each with the identity of its file."""

    def folder(self, split: SplitName) -> Path:
        """Where a split is kept: another place for each choice of files, and for each way to read their labels."""
        listing, root = self.listing, os.path.abspath(self.listing.root)
        reading = (listing.classes, listing.label_coding, listing.reduction, listing.selection.get(split))
        key = blake2b(json.dumps([PLACES, root, *reading, *self._style]).encode(), digest_size=8).hexdigest()
        return cache_root(self.config.cache) / f"{os.path.basename(root)[:LONGEST]}-{key}" / split

    @property
    def _style(self) -> list[object]:
        """How pixels are read; what is usual is left out, so that caches and runs of earlier versions stay valid."""
        style = self.listing.image_style
        return [part for part in (style.bands, style.bits) if part not in (COLOURS.bands, COLOURS.bits)]

    def samples(self, split: SplitName) -> Samples:
        """The decoded images of a split; says what is left out of it."""
        with self._locked(split):
            index = self._current_index(split)
            if left_out := index.surveys_left_out:
                say(self.console, f"Note: {left_out_note(self.listing, split, left_out)}")
            sizes = np.array([record.size for record in index.items], dtype=np.int64)
            bounds = np.concatenate(([0], np.cumsum(sizes.prod(axis=1))))
            pixels, labels = zip(*(record.checksums for record in index.items), strict=True)
            labelled = len(labels) - labels.count(None)
            decode = partial(self._decode_again, split, index, set())
            colours = Originals(bounds, pixels, partial(decode, PIXELS))
            classes = Originals(
                bounds[: labelled + 1], labels[:labelled], partial(decode, LABELS), len(self.listing.classes)
            )
            return Samples(
                names=tuple(index.surveys),
                sizes=sizes,
                pixels=OnDisk(self.folder(split) / PIXELS, (int(bounds[-1]), 3), colours),
                labels=OnDisk(self.folder(split) / LABELS, (int(bounds[labelled]),), classes),
                labelled=labelled,
                dense=True,
                content=index.content(self._style),
                groups=tuple(map(self.listing.group_of, index.surveys)) if self.listing.group_of else (),
            )

    def surveys(self, *splits: SplitName) -> Surveys:
        """The surveys of all items of these splits, by name."""
        found: dict[str, Survey] = {}
        for split in splits:
            with self._locked(split):
                found |= self._current_index(split).surveys
        return found

    def _locked(self, split: SplitName) -> AbstractContextManager[None]:
        """Let one process at a time into the block."""
        # Images are no less private than their folder; a cache that the user names may be meant for several.
        private = self.config.cache is None
        return locked(self.folder(split).parent, split, self.console, private, "decoded images")

    def _current_index(self, split: SplitName) -> Index:
        """The index of a split: as it was decoded earlier, if nothing has changed since, or else now."""
        items = self.listing.splits[split]
        if not items:
            purpose = "train on" if split == "train" else f"use as {split}"
            raise UserError(f"{self.listing.root}: has no images to {purpose}.")
        index, problem = self._stored_index(split)
        if problem:
            say(self.console, f"Note: {self.folder(split)} {problem}: its images are decoded again.")
        if index is not None:
            changed = bool(self._changes(split, index))
            if changed and not self.config.refresh:
                raise UserError(self._explain_changes(index.made))
            if not changed and index.is_complete_for(items) and self._leaves_out_the_same(split, index):
                leave_out(self.listing, split, index.surveys_left_out, self.config)
                return index
            if split != "train" and (note := index.other_names(items)):
                say(self.console, f"Note: {note}")
        self._decode(split, items)
        decoded, problem = self._stored_index(split)
        if decoded is None:
            raise UserError(f"{self.folder(split)} {problem or 'is gone'}, just after it was written. Check the disk.")
        return decoded

    def _stored_index(self, split: SplitName) -> tuple[Index | None, str]:
        """The index of what has been decoded, if it is usable, and else why it is not; neither where there is none."""
        folder = self.folder(split)
        if not (folder / INDEX).exists():
            return None, "is incomplete" if folder.exists() else ""
        status = (folder / INDEX).stat()
        identity = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        index, read = self.indexes.get(split, (None, None))
        if index is None or read != identity:
            try:
                index = Index.read(folder / INDEX, len(self.listing.classes))
            except UnusableIndex as error:
                return None, str(error)
            self.indexes[split] = index, identity
        pixels, labelled_pixels = index.pixel_counts
        for name, expected in ((PIXELS, 3 * pixels), (LABELS, labelled_pixels)):
            found = (folder / name).stat().st_size if (folder / name).is_file() else 0
            if found != expected or not (folder / name).is_file():
                return None, f"is damaged ({name} has {found} of {expected} bytes)"
        return index, ""

    def _changes(self, split: SplitName, index: Index) -> list[tuple[int, str]]:
        """What has changed of the files of a split since they were decoded: how bad, and in words."""
        changed = changed_files(stamps_of(index.items), self._memory(split), self.console)
        return list(index.explain(changed, self.listing.items))

    def _memory(self, split: SplitName) -> Path:
        """Where it is remembered which touched files are the same: beside the folder, which others may be replacing."""
        return self.folder(split).with_name(f"{split}.compared.json")

    def _leaves_out_the_same(self, split: SplitName, index: Index) -> bool:
        """Whether the files that were left out of a split are as they were, and none may be of use now."""
        try:
            return not changed_files(stamps_of(index.left_out), self._memory(split), self.console)
        except UserError:
            return False  # decoding will say what is wrong with it

    def _explain_changes(self, made: str) -> str:
        """What has changed in all splits."""
        changes = [
            change
            for split in self.listing.splits
            if (index := self._stored_index(split)[0])
            for change in self._changes(split, index)
        ]
        words = [change for _, change in sorted(changes, key=itemgetter(0))]
        return (
            f"{self.listing.root}: not as it was when it was decoded on {made}: {listed(words, NAMED)}. "
            "Restore what should be there, or accept the change with --data.refresh."
        )

    def _decode(self, split: SplitName, items: Sequence[Item]) -> None:
        """Decode a split on all cores; it takes its place in the cache when it is complete."""
        with new_folder(self.folder(split)) as new:
            _require_space(self.listing, items, new)
            decoded = self._write(items, new)
            left_out = leave_out(self.listing, split, {record.name: record for record in decoded}, self.config)
            Index.write(new / INDEX, decoded, left_out)

    def _write(self, items: Sequence[Item], folder: Path) -> list[Record]:
        """Decode items into two files, pixels and labels, and return what is known of them."""
        decoded: list[Record] = []
        decode = partial(self._decode_item, {})
        with (
            (folder / PIXELS).open("wb") as pixels,
            (folder / LABELS).open("wb") as labels,
            progress_bar(self.console, "Decoding images", len(items)) as advance,
        ):
            for found, image, label_map in in_threads(decode, items):
                decoded.append(found)
                advance()
                if image is not None:
                    pixels.write(image.data)
                if label_map is not None:
                    labels.write(label_map.data)
            for file in (pixels, labels):
                file.flush()
                os.fsync(file.fileno())  # before the rename that makes them count
        return decoded

    def _decode_item(
        self, digests: dict[tuple[str, str], str], item: Item
    ) -> tuple[Record, Bytes | None, Bytes | None]:
        """What is known of an item, its pixels and its labels, contiguous in memory; neither where it is not used.

        Raises:
            UserError: Its files change again and again while they are read.
        """
        for _ in range(ATTEMPTS):
            before = stamp_files(item, digests)
            survey, image, labels = decode_and_survey(self.listing, item)
            if stamp_files(item, digests) == before and not self._outlines_changed(item):
                break
        else:
            raise UserError(f"{item.image}: it or its mask changes while it is read. Run the command again later.")
        files = [stamp for stamp, _ in before]
        if image is None or survey.problem:
            return Record(files=files, **dict(survey)), None, None
        pixels = np.ascontiguousarray(image)
        labels = None if labels is None else np.ascontiguousarray(labels)
        checksums = checksum(pixels), None if labels is None else checksum(labels)
        return Record(files=files, checksums=checksums, **dict(survey)), pixels, labels

    def _outlines_changed(self, item: Item) -> bool:
        """Whether an item's outlines, which are read when files are listed, have another file since.

        Raises:
            UserError: Nobody can tell, since clocks disagree.
        """
        outlined = self.listing.label_coding.startswith("annotations")
        if not outlined or item.mask is None or not item.mask.exists():
            return False
        changed = item.mask.stat().st_ctime
        if (ahead := changed - time.time()) > 1:
            raise UserError(
                f"{item.mask}: its disk says that it was changed {ahead:,.0f} s in the future. Set the clock of this "
                "computer, or of the one with that disk; or run the command again when that time has come."
            )
        return changed > self.listed_after

    def _decode_again(self, split: SplitName, index: Index, said: set[str], part: str, number: int) -> Bytes:
        """The pixels or the labels (`part`) of an image, by its number: one of the two is damaged in the cache.

        That a part is damaged is `said` once.
        """
        name, file = index.items[number].name, self.folder(split) / part
        if part not in said:
            said.add(part)
            say(self.console, f"Note: {file} is damaged at {name}: what is not as it was is decoded again.")
        item = next(item for item in self.listing.splits[split] if item.name == name)
        found, *decoded = self._decode_item({}, item)
        which = (PIXELS, LABELS).index(part)
        values = decoded[which]
        if values is None or found.checksums[which] != index.items[number].checksums[which]:
            if self._changes(split, index):
                raise UserError(self._explain_changes(index.made))
            (file.parent / INDEX).unlink(missing_ok=True)  # by another decoder, or the index itself is wrong
            raise UserError(f"{file}: the {part} of {name} are damaged, and decoding it again gives others. {AGAIN}")
        return values


def stamps_of(records: Sequence[Record]) -> list[Stamp]:
    """What the files of items were."""
    return [stamp for record in records for stamp in record.files]


def _require_space(listing: Listing, items: Sequence[Item], folder: Path) -> None:
    """Refuse a disk that is too small before the first image is decoded, not after half of them."""
    needed = 0
    for item in items:
        try:
            height, width = image_size(item.image)
        except UserError:
            continue  # decoding will say what is wrong with it
        needed += height * width * (4 if item.labelled else 3) // listing.factor((height, width)) ** 2
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder.parent}: {len(items)} decoded images need {in_bytes(needed)}, and {in_bytes(free)} are free. "
            f"{ANOTHER_CACHE}"
        )
