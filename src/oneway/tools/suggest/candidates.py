"""The images among which to choose: those of a run without labels, or those of a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from oneway import data, runs
from oneway.data.dataset import Bytes, factor_of
from oneway.data.decode.images import read_image, reduced
from oneway.data.folder.files import find
from oneway.data.image_style import ImageStyle
from oneway.tools.run_data import refuse_other_style


@dataclass(frozen=True)
class Candidate:
    """An image without labels."""

    name: str
    read: Callable[[], Bytes]
    path: Path | None = None
    """Its file, absolute; None where it was made by code."""

    has_mask: bool = False
    """Whether labels exist, used or not."""


def candidates_of_run(
    run: runs.Run, style: ImageStyle, console: Console, *, refresh: bool = False, cache: Path | None
) -> tuple[list[Candidate], list[Candidate]]:
    """A run's training images that it has no labels for, and those that it has; as its model has learnt to see them."""
    known = data.load(runs.data_of(run, console, refresh=refresh, cache=cache), console)
    refuse_other_style(run.path, style, known)
    samples = known.read("train")
    paths = {name: path.absolute() for name, path in known.paths.items()}
    images = [
        Candidate(name, partial(samples.image, index), paths.get(name), index < samples.labelled)
        for index, name in enumerate(samples.names)
    ]
    labelled = set(run.split.labelled)
    return [one for one in images if one.name not in labelled], [one for one in images if one.name in labelled]


def candidates_in_folder(folder: Path, style: ImageStyle, reduction: int) -> list[Candidate]:
    """Images of a folder that have no labels there, as a model sees them, and at most so many times smaller."""

    def read(path: Path) -> Bytes:
        image = read_image(path, style=style)
        return reduced(image, factor_of((image.shape[0], image.shape[1]), reduction))

    items = find(folder).train
    return [
        Candidate(item.name, partial(read, item.image), item.image.absolute()) for item in items if not item.labelled
    ]
