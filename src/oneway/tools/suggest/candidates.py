"""The images to choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from oneway import data
from oneway.data.check.survey import fingerprint
from oneway.data.dataset import Bytes
from oneway.data.decode.images import read_image
from oneway.data.folder.files import find
from oneway.runs import Run, data_of


@dataclass(frozen=True)
class Candidate:
    """An image without labels, not yet decoded."""

    name: str
    read: Callable[[], Bytes]


def candidates_of_run(run: Run, console: Console, refresh: bool = False) -> tuple[list[Candidate], list[bytes]]:
    """A run's training images without labels, and fingerprints of those with."""
    samples = data.load(data_of(run.config, refresh=refresh), console).read("train")
    labelled = set(run.split.labelled)
    numbered = list(enumerate(samples.names))
    candidates = [Candidate(name, partial(samples.image, index)) for index, name in numbered if name not in labelled]
    return candidates, [fingerprint(samples.image(index)) for index, name in numbered if name in labelled]


def candidates_in_folder(folder: Path) -> list[Candidate]:
    """Images of a folder that have no mask there."""
    items = find(folder).train
    return [Candidate(item.name, partial(read_image, item.image)) for item in items if item.mask is None]
