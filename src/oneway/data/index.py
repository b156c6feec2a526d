"""The index of decoded images: what each file was when it was decoded, and what its survey showed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

from oneway.data.check.defects import Surveys
from oneway.data.check.survey import Survey
from oneway.data.dataset import Item

FORMAT = 1


@dataclass(frozen=True)
class Index:
    """Of a decoded split."""

    made: str
    records: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Index | None:
        """None where there is none, or none that this version can read."""
        try:
            index = json.loads(path.read_text(encoding="utf-8"))
            return cls(index["made"], index["items"]) if index["format"] == FORMAT else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def write(path: Path, items: Sequence[Item], surveys: Surveys) -> None:
        """Of what has just been decoded."""
        digests: dict[Path, str] = {}
        records = [
            {
                "files": [_stamp(path, digests) for path in (item.image, item.mask) if path],
                **asdict(surveys[item.name]),
                "fingerprint": surveys[item.name].fingerprint.hex(),
            }
            for item in items
        ]
        index = {"format": FORMAT, "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "items": records}
        path.write_text(json.dumps(index), encoding="utf-8")

    @property
    def names(self) -> list[str]:
        """Of the items, in order."""
        return [record["name"] for record in self.records]

    @cached_property
    def surveys(self) -> list[Survey]:
        """One for each item."""
        return [_survey(record) for record in self.records]

    @property
    def content(self) -> str:
        """A digest of all files."""
        files = [(record["name"], [stamp["digest"] for stamp in record["files"]]) for record in self.records]
        return blake2b(json.dumps(files).encode(), digest_size=16).hexdigest()

    def changes(self, items: Sequence[Item]) -> Iterator[str]:
        """What has changed since, or vanished, in words; new files are no change."""
        listed = {item.name: item for item in items}
        for record in self.records:
            item = listed.get(record["name"])
            files = [] if item is None else [str(path) for path in (item.image, item.mask) if path]
            for stamp in record["files"]:
                if not Path(stamp["path"]).is_file():
                    yield f"{stamp['path']} is gone"
                elif stamp["path"] not in files:
                    yield f"{stamp['path']} does not play the part it did"
                elif not _unchanged(stamp):
                    yield f"{stamp['path']} has other content"


def _stamp(path: Path, digests: dict[Path, str]) -> dict[str, Any]:
    """What tells whether a file is still the same; many items may share one file of annotations."""
    status = path.stat()
    digest = digests.get(path) or digests.setdefault(path, _digest(path))
    return {"path": str(path), "bytes": status.st_size, "modified": status.st_mtime_ns, "digest": digest}


def _unchanged(stamp: dict[str, Any]) -> bool:
    """By size and time; a file that was merely touched or copied, by its content."""
    path = Path(stamp["path"])
    status = path.stat()
    if (status.st_size, status.st_mtime_ns) == (stamp["bytes"], stamp["modified"]):
        return True
    return status.st_size == stamp["bytes"] and _digest(path) == stamp["digest"]


def _digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _survey(record: dict[str, Any]) -> Survey:
    fields = {key: value for key, value in record.items() if key != "files"}
    height, width = fields["size"]
    counts = fields["labels"]
    return Survey(
        **fields
        | {
            "size": (height, width),
            "labels": None if counts is None else {int(label): count for label, count in counts.items()},
            "fingerprint": bytes.fromhex(fields["fingerprint"]),
        }
    )
