"""What the writers of all formats are given, and what they give.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from oneway.data.dataset import Bytes, Colour
from oneway.tools.annotations.regions import Region

Files = dict[str, bytes]
"""The content of files, by their path below the folder of a format."""


@dataclass(frozen=True)
class Scheme:
    """The classes, and how regions are drawn."""

    classes: tuple[str, ...]
    colours: tuple[Colour, ...]
    wanted: tuple[int, ...]
    """Indices of the classes that are written; the others are background."""

    tolerance: float
    """Pixels between a polygon and the edges of pixels; 0: masks, which are exact, where a format has them."""

    least: int
    """Pixels of a region; smaller ones are left out."""

    @property
    def names(self) -> list[str]:
        """Of the classes that are written."""
        return [self.classes[index] for index in self.wanted]

    def number(self, region: Region) -> int:
        """The place of a region's class among those that are written, from 0."""
        return self.wanted.index(region.label)

    def hex_colour(self, index: int) -> str:
        """#rrggbb of a class."""
        return "#{:02x}{:02x}{:02x}".format(*self.colours[index])


@dataclass(frozen=True, eq=False)
class Picture:
    """An image and what a model found in it."""

    path: Path
    """The file, absolute."""

    name: str
    """The same below the folder of images, with forward slashes and its suffix."""

    stem: str
    """The name for files about it, without a suffix; no two pictures share one."""

    labels: Bytes  # H×W
    regions: tuple[Region, ...]
    confidence: float

    @property
    def size(self) -> tuple[int, int]:
        height, width = self.labels.shape
        return height, width

    @property
    def folder(self) -> Path:
        return self.path.parents[len(PurePosixPath(self.name).parts) - 1]


class Writer(Protocol):
    """One format."""

    images: str
    """The folder in which the tool looks for images, below that of the format."""

    def describe(self, picture: Picture, scheme: Scheme, folder: Path) -> tuple[Files, Any]:
        """The files about one picture, which will be in `folder`, and what `gather` needs to know about it.

        May be called in several threads.
        """

    def gather(self, parts: Sequence[Any], scheme: Scheme) -> Files:
        """The files about all pictures, from what `describe` gave for each of them, in order of name."""
