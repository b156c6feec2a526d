"""The index of decoded images: what each file was when it was decoded, and what its survey showed."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, Field, ValidationError

from oneway.common.errors import UserError, cannot_read
from oneway.common.terms import IGNORE
from oneway.common.words import listed
from oneway.data.check.rules.interface import Surveys
from oneway.data.check.survey import GRID, Survey
from oneway.data.dataset import Item

FORMAT = 3
"""The format of index files: one with another number was written by another version, and is not read."""
SEAL = b', "seal": "'
"""What stands before the digest of all that stands before it, at the end of the file."""
SETTLED = 2.0
"""Seconds after which a file that has the same time has the same content: clocks of file systems are coarse."""
MOST_BYTES = 2**32
"""The most bytes of a file that is stamped: no image or mask that is decoded has more."""


class UnusableIndex(Exception):
    """Why an index cannot be used: made by another version, or damaged."""


Word32 = Annotated[int, Field(ge=0, lt=2**32)]


class Stamp(BaseModel):
    """What a file was."""

    path: str
    bytes: int | None  # None where it was not there
    modified: int | None
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None  # of its content, where it was decoded

    @classmethod
    def of(cls, path: str) -> Self:
        """Size and time of a file, if it is there."""
        status = os.stat(path) if os.path.exists(path) else None
        return cls(path=path, bytes=status and status.st_size, modified=status and status.st_mtime_ns)

    def holds(self, by_content: bool = False) -> bool:
        """Whether the file has this size and time, or is still not there; or else has its size and content."""
        now = Stamp.of(self.path)
        if now.bytes != self.bytes:
            return False
        if by_content and now.modified != self.modified and _digest(self.path) == self.digest:
            self.modified = now.modified  # what has been copied or touched is read once, and not at every question
        return now.modified == self.modified


class Record(Survey):
    """The survey of an item that has been decoded, or could not be; with its files, and what was decoded."""

    files: list[Stamp]
    checksums: tuple[Word32, Word32 | None] = (0, None)  # of its pixels, and of its labels


class Index(BaseModel):
    """What was decoded of a split, item by item."""

    format: int = FORMAT
    made: Annotated[str, Field(pattern=r"^[-0-9: UTC]{1,40}$")]  # when it was written
    items: list[Record]
    left_out: list[Record]  # could not be read; may be repaired or removed without --data.refresh

    @classmethod
    def read(cls, path: Path, classes: int) -> Self:
        """The index in a file; labels in it are below the number of classes.

        Raises:
            UnusableIndex: Another version has written it, or it is not as it was written.
        """
        if not path.is_file():
            raise UnusableIndex(f"is damaged ({path.name} is no file)")
        content = path.read_bytes()
        sealed, _, seal = content.rpartition(SEAL)
        if seal != _seal(sealed):
            raise UnusableIndex(_other_version(content) or f"is damaged ({path.name} is not as it was written)")
        try:
            found = cls.model_validate_json(content, strict=True)
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            raise UnusableIndex(f"is damaged ({place[:100]} in {path.name})") from None
        names = [record.name for record in (*found.items, *found.left_out)]
        labelled = [record.labels is not None for record in found.items]
        if (
            found.format != FORMAT
            or len({*names}) < len(names)
            or labelled != sorted(labelled, reverse=True)
            or not all(_is_whole(record, classes) for record in found.items)
        ):
            raise UnusableIndex(f"is damaged ({path.name} contradicts itself)")
        return found

    @classmethod
    def write(cls, path: Path, records: Sequence[Record], left_out: Collection[str]) -> None:
        """Write the index of items that have just been decoded, of which some, by name, could not be."""
        items, others = ([one for one in records if (one.name in left_out) == left] for left in (False, True))
        index = cls(made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), items=items, left_out=others)
        sealed = json.dumps(index.model_dump(mode="json")).encode()[:-1]
        path.write_bytes(sealed + SEAL + _seal(sealed))

    @cached_property
    def surveys(self) -> Surveys:
        """Surveys of the items that were decoded, by name and in order."""
        return {record.name: record for record in self.items}

    @property
    def surveys_left_out(self) -> Surveys:
        """Surveys of the items that were left out, by name."""
        return {record.name: record for record in self.left_out}

    def content(self, style: Sequence[object] = ()) -> str:
        """A digest of all files, and of what was read in them: another dataset.yaml can read other labels and pixels.

        `style` is how pixels were read, where that is unusual.
        """
        files = [(record.name, [stamp.digest for stamp in record.files], record.labels) for record in self.items]
        return blake2b(json.dumps([*files, *style]).encode(), digest_size=16).hexdigest()

    @property
    def pixel_counts(self) -> tuple[int, int]:
        """How many pixels were decoded, and how many of them in images that have labels."""
        areas = [(survey.size[0] * survey.size[1], survey.labels is not None) for survey in self.surveys.values()]
        return sum(area for area, _ in areas), sum(area for area, labelled in areas if labelled)

    def is_complete_for(self, items: Sequence[Item]) -> bool:
        """Whether these items were decoded, from these files and in this order, or left out and are as they were."""
        decoded = [(record.name, [stamp.path for stamp in record.files]) for record in self.items]
        left_out = {record.name: record.files for record in self.left_out}
        return (
            decoded == [(item.name, files_of(item)) for item in items if item.name not in left_out]
            and len(decoded) + len(left_out) == len(items)
            and all(stamp.holds() for files in left_out.values() for stamp in files)
        )

    def changed_files(self, items: Sequence[Item]) -> Iterator[tuple[int, str]]:
        """Files that have changed or vanished since, or are not listed for their item any more: how bad, and in words.

        The worst, 0, comes first in a message: an image that is gone, and then its mask, which has lost its image.

        Files that are new, or were left out, are no change; nor is an item that has moved to another split, as some do
        when more images are labelled. So `items` are those of all splits.
        """
        listed = {item.name: files_of(item) for item in items}
        for record in self.items:
            for stamp in record.files:
                path = stamp.path
                if not os.path.isfile(path):
                    yield 0, f"{path} is gone"
                elif not stamp.holds(by_content=True):
                    yield 1, f"{path} has other content"
                elif path not in listed.get(record.name, ()):
                    yield 2, f"{path} has no image of its name any more"

    def other_names(self, items: Sequence[Item]) -> str:
        """A note on items that have come into the split since it was decoded, or have left it; or nothing."""
        was, now = {*self.surveys, *self.surveys_left_out}, {item.name for item in items}
        sides = {"new": sorted(now - was), "no longer among them": sorted(was - now)}
        words = [f"{what}: {listed(names)}" for what, names in sides.items() if names]
        return f"other images validate now ({'; '.join(words)}): earlier scores are not of these." if words else ""


def files_of(item: Item) -> list[str]:
    """An item's files, by absolute paths: the same in whichever way the data folder was given."""
    return [os.path.abspath(path) for path in (item.image, item.mask, *item.further) if path]


def stamp_files(item: Item, digests: dict[tuple[str, str], str]) -> list[tuple[Stamp, str]]:
    """What an item's files are, if they are there, each with what else would be different in another file of its name.

    Asked before and after they are decoded, it tells whether others have come in between. Digests that are known, by
    path and by that, are not computed again: items may share a file of annotations.
    """
    found = []
    for path in files_of(item):
        stamp, identity = Stamp.of(path), ""
        with suppress(OSError, UserError):  # decoding will say so
            status = os.stat(path)
            identity = f"{status.st_dev} {status.st_ino} {status.st_ctime_ns}"
            if stat.S_ISREG(status.st_mode) and status.st_size <= MOST_BYTES:
                key, settled = (path, identity), abs(time.time() - status.st_ctime) > SETTLED
                if not settled or key not in digests:
                    digests[key] = _digest(path)
                stamp.digest = digests[key]
        found.append((stamp, identity))
    return found


def _seal(content: bytes) -> bytes:
    return f'{blake2b(content, digest_size=16).hexdigest()}"}}'.encode()


def _other_version(content: bytes) -> str:
    """What is said of an index that another version has written; nothing of one that has been damaged."""
    try:
        number = json.loads(content)["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return "was made by another version of oneway" if isinstance(number, int) and number != FORMAT else ""


def _is_whole(record: Record, classes: int) -> bool:
    """Whether a decoded item has all that one has."""
    (height, width), labels, (_, check) = record.size, record.labels, record.checksums
    return (
        height * width > 0
        and len(record.fingerprint) == GRID**2
        and record.problem is None
        and all(stamp.digest and stamp.bytes is not None for stamp in record.files)
        and (labels is None) == (check is None)
        and (labels is None or sum(labels.values()) == height * width)
        and all(label < classes or label == IGNORE for label in labels or ())
    )


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file_digest(file, partial(blake2b, digest_size=16)).hexdigest()
    except OSError as error:
        raise cannot_read(path, error) from None
