"""Files that are not predicted where a folder or a pattern is, and what is said of them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from oneway.common.words import counted, listed
from oneway.data.cache.archives import unzip_command

ARCHIVES = frozenset({".tar", ".zip", ".tgz", ".gz"})


@dataclass
class Skipped:
    """Files within folders and patterns that are not predicted."""

    kinds: Counter[str] = field(default_factory=Counter)
    """Pictures that are not read, by suffix."""

    archives: list[Path] = field(default_factory=list)
    """Among them shards, which training alone can read."""

    masks: list[Path] = field(default_factory=list)

    links: list[Path] = field(default_factory=list)
    """To other folders, or to nothing."""

    unlisted: list[OSError] = field(default_factory=list)
    """Why some folders cannot be listed."""

    def messages(self) -> Iterator[str]:
        """A line for each kind."""
        if self.kinds:
            counts = listed(f"{count} of kind {suffix}" for suffix, count in sorted(self.kinds.items()))
            yield f"Not read, and left out: {counts}. Convert them to JPEG or PNG."
        if self.archives:
            what = counted(len(self.archives), "shard or archive", "shards or archives")
            yield f"Not read, and left out: {what} ({self.archives[0]} is the first). {how_to_unpack(*self.archives)}"
        if self.links:
            which = f"{counted(len(self.links), 'link')} to folders or to nothing ({self.links[0]} is the first)"
            yield f"Not followed, and left out: {which}. Name the folders too, to predict what is in them."
        if self.unlisted:
            first, what = self.unlisted[0], counted(len(self.unlisted), "folder")
            yield f"Left out: {what} that cannot be listed ({first.filename} is the first: {first.strerror})."
        if self.masks:
            what = "1 file is a mask" if len(self.masks) == 1 else f"{len(self.masks)} files are masks"
            yield f"{what} of a data set, and left out ({self.masks[0]} is the first). To predict them, name the files."


def how_to_unpack(first: Path, *others: Path) -> str:
    """How to come by the files in archives."""
    tar = shlex.quote(str(first))
    if first.suffix.lower() == ".zip":
        return f"Unpack {'each' if others else 'it'}, and give the folder: {unzip_command(first)}"
    if not others:
        return f"Unpack it, and give the folder: mkdir photos && tar -xf {tar} -C photos"
    every = f"{shlex.quote(str(first.parent))}/*{first.suffix}"
    return f'Unpack them, and give the folder: mkdir photos; for f in {every}; do tar -xf "$f" -C photos; done'
