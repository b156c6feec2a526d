"""One thing that is wrong with a data set, and how it names the files that it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oneway.data.check.survey import Survey
from oneway.data.dataset import Item, Listing
from oneway.data.decode.masks import MASK_SUFFIXES

WHOLE_SET = "."  # the file of a finding that is about no single file

Surveys = Mapping[str, Survey]
"""What was found when items were looked at, by their names."""


@dataclass(frozen=True)
class Finding:
    """One thing that makes training wrong (an error), or that is suspicious (a warning)."""

    level: Literal["error", "warning"]
    kind: str  # the heading that it shares with others of its kind
    file: str  # its path below the data folder where it lies there, or WHOLE_SET
    message: str  # the value, and what to do about it where the kind does not say


Rule = Callable[[Listing, Surveys], Iterator[Finding]]
"""It reads a listing and the surveys of all its items."""


def held_out(listing: Listing) -> tuple[tuple[str, tuple[Item, ...]], ...]:
    """Validation and test items, by the words for the split."""
    return ("validation", listing.val), ("test", listing.test)


def relative(path: Path, root: Path) -> str:
    """A path below the data folder, or the whole path where it lies elsewhere."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def image_file(item: Item, listing: Listing) -> str:
    """An item's name; the path of its image where that lies elsewhere, and the name is one that it was given."""
    return item.name if item.image.is_relative_to(listing.root) else str(item.image)


def labels_file(item: Item, listing: Listing) -> str:
    """The item's own mask; its image, where one file holds the labels of all."""
    own = item.mask is not None and item.mask.suffix.lower() in MASK_SUFFIXES
    return relative(item.mask, listing.root) if item.mask and own else image_file(item, listing)


def mentioned_as(item: Item, listing: Listing) -> set[str]:
    """The names under which findings may mention an item."""
    return {item.name, image_file(item, listing), labels_file(item, listing)}


def pixels_by_label(items: Iterable[Item], surveys: Surveys) -> Counter[int]:
    """How many pixels of the items have each label; IGNORE is counted too."""
    count = Counter[int]()
    for item in items:
        count.update(surveys[item.name].labels or {})
    return count
