"""The index of decoded images: what each file was when it was decoded, and what its survey showed."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

from oneway.common.errors import UserError
from oneway.common.words import listed
from oneway.data.check.defects import Surveys
from oneway.data.check.survey import Survey
from oneway.data.dataset import Item

FORMAT = 2
"""Of index files: one with another number was written by another version, and is not read."""


@dataclass(frozen=True)
class Index:
    """What was decoded of a split, item by item: its survey, and what its files were."""

    made: str  # when it was written
    decoded: list[dict[str, Any]]
    left_out: list[dict[str, Any]]  # could not be read; may be repaired or removed without --data.refresh

    @classmethod
    def read(cls, path: Path) -> Index | None:
        """The index in a file; None where there is none, or none that this version can read."""
        try:
            index = json.loads(path.read_text(encoding="utf-8"))
            known = index["format"] == FORMAT
            return cls(index["made"], index["items"], index.get("left_out", [])) if known else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def write(path: Path, items: Sequence[Item], surveys: Surveys, left_out: Container[str] = ()) -> None:
        """Writes the index of items that have just been decoded; those of the names `left_out` could not be."""
        digest = cache(_digest)  # items may share a file of annotations
        made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        index: dict[str, Any] = {"format": FORMAT, "made": made, "items": [], "left_out": []}
        for item in items:
            survey = surveys[item.name]
            record = {"files": [_trace(path) for path in _files(item)], **asdict(survey)}
            record["fingerprint"] = survey.fingerprint.hex()
            if item.name in left_out:
                index["left_out"].append(record)
            else:
                index["items"].append(record)
                for trace in record["files"]:
                    trace["digest"] = digest(trace["path"])
        path.write_text(json.dumps(index), encoding="utf-8")

    @cached_property
    def surveys(self) -> Surveys:
        """Surveys of the items that were decoded, by name and in order."""
        return {record["name"]: _survey(record) for record in self.decoded}

    @property
    def surveys_left_out(self) -> Surveys:
        """Surveys of the items that were left out, by name."""
        return {record["name"]: _survey(record) for record in self.left_out}

    @property
    def content(self) -> str:
        """A digest of all files, and of what was read in them: another dataset.yaml can read other labels."""
        files = [
            (record["name"], [stamp["digest"] for stamp in record["files"]], record["labels"])
            for record in self.decoded
        ]
        return blake2b(json.dumps(files).encode(), digest_size=16).hexdigest()

    @property
    def pixel_counts(self) -> tuple[int, int]:
        """How many pixels were decoded, and how many of them in images that have labels."""
        areas = [(survey.size[0] * survey.size[1], survey.labels is not None) for survey in self.surveys.values()]
        return sum(area for area, _ in areas), sum(area for area, labelled in areas if labelled)

    def is_complete_for(self, items: Sequence[Item]) -> bool:
        """Whether these items were decoded, from these files and in this order, or left out and are as they were."""
        decoded = [(record["name"], [stamp["path"] for stamp in record["files"]]) for record in self.decoded]
        left_out = {record["name"]: record["files"] for record in self.left_out}
        return (
            decoded == [(item.name, _files(item)) for item in items if item.name not in left_out]
            and len(decoded) + len(left_out) == len(items)
            and all(_trace(trace["path"]) == trace for files in left_out.values() for trace in files)
        )

    def changed_files(self, items: Sequence[Item]) -> Iterator[tuple[int, str]]:
        """Files that have changed or vanished since, or are not listed for their item any more: how bad, and in words.

        The worst, 0, comes first in a message: an image that is gone, and then its mask, which has lost its image.

        Files that are new, or were left out, are no change; nor is an item that has moved to another split, as some do
        when more images are labelled. So `items` are those of all splits.
        """
        listed = {item.name: _files(item) for item in items}
        for record in self.decoded:
            for stamp in record["files"]:
                path = stamp["path"]
                if not os.path.isfile(path):
                    yield 0, f"{path} is gone"
                elif not _unchanged(stamp):
                    yield 1, f"{path} has other content"
                elif path not in listed.get(record["name"], ()):
                    yield 2, f"{path} has no image of its name any more"

    def other_names(self, items: Sequence[Item]) -> str:
        """A note on items that have come into the split since it was decoded, or have left it; or nothing."""
        was, now = {*self.surveys, *self.surveys_left_out}, {item.name for item in items}
        sides = {"now validate": sorted(now - was), "no longer validate": sorted(was - now)}
        words = [f"{listed(names)} {what}" for what, names in sides.items() if names]
        return f"{'; '.join(words)}. Scores before and after are of different images." if words else ""


def _files(item: Item) -> list[str]:
    """An item's files, by absolute paths: the same in whichever way the data folder was given."""
    return [os.path.abspath(path) for path in (item.image, item.mask) if path]


def _trace(path: str) -> dict[str, Any]:
    """Size and time of a file, if it is there, to tell later whether it is the same."""
    status = os.stat(path) if os.path.exists(path) else None
    return {"path": path, "bytes": status and status.st_size, "modified": status and status.st_mtime_ns}


def _unchanged(stamp: dict[str, Any]) -> bool:
    """Whether a file has the size and time of its stamp; where only the time differs, whether it has the content."""
    now = _trace(stamp["path"])
    return now.items() <= stamp.items() or (
        now["bytes"] == stamp["bytes"] and _digest(stamp["path"]) == stamp["digest"]
    )


def _digest(path: str) -> str:
    try:
        return blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from None


def _survey(record: dict[str, Any]) -> Survey:
    fields = {key: value for key, value in record.items() if key != "files"}
    if fields["labels"] is not None:
        fields["labels"] = {int(label): count for label, count in fields["labels"].items()}
    return Survey(**fields | {"size": tuple(fields["size"]), "fingerprint": bytes.fromhex(fields["fingerprint"])})
