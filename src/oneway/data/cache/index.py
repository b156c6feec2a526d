"""The index of decoded images: what each file was when it was decoded, and what its survey showed."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, Field, ValidationError

from oneway.common.terms import IGNORE
from oneway.common.words import listed
from oneway.data.cache.stamps import Stamp, files_of
from oneway.data.check.rules.interface import Surveys
from oneway.data.check.survey import GRID, Survey
from oneway.data.dataset import Item

FORMAT = 3
"""The format of index files: one with another number was written by another version, and is not read."""
SEAL = b', "seal": "'
"""What stands before the digest of all that stands before it, at the end of the file."""


class UnusableIndex(Exception):
    """Why an index cannot be used: made by another version, or damaged."""


Word32 = Annotated[int, Field(ge=0, lt=2**32)]


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
        """Whether these items were decoded, from these files and in this order, or left out."""
        left_out = {record.name for record in self.left_out}
        decoded = [(record.name, [stamp.path for stamp in record.files]) for record in self.items]
        expected = [(item.name, files_of(item)) for item in items if item.name not in left_out]
        return decoded == expected and len(decoded) + len(left_out) == len(items)

    def explain(self, changed: Collection[str], items: Sequence[Item]) -> Iterator[tuple[int, str]]:
        """Files that have changed since, or are not listed for their item any more: how bad, and in words.

        The worst, 0, comes first in a message: an image that is gone, and then its mask, which has lost its image.

        Files that are new, or were left out, are no change; nor is an item that has moved to another split, as some do
        when more images are labelled. So `items` are those of all splits.
        """
        listed = {item.name: files_of(item) for item in items}
        for record in self.items:
            for stamp in record.files:
                path = stamp.path
                if path in changed:
                    yield (1, f"{path} has other content") if os.path.isfile(path) else (0, f"{path} is gone")
                elif path not in listed.get(record.name, ()):
                    yield 2, f"{path} has no image of its name any more"

    def other_names(self, items: Sequence[Item]) -> str:
        """A note on items that have come into the split since it was decoded, or have left it; or nothing."""
        was, now = {*self.surveys, *self.surveys_left_out}, {item.name for item in items}
        sides = {"new": sorted(now - was), "no longer among them": sorted(was - now)}
        words = [f"{what}: {listed(names)}" for what, names in sides.items() if names]
        return f"other images validate now ({'; '.join(words)}): earlier scores are not of these." if words else ""


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
