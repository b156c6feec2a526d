"""Under which names findings mention the files of an item."""

from __future__ import annotations

from pathlib import Path

from oneway.data.dataset import Item, Listing
from oneway.data.decode.images import SUFFIXES


def relative(path: Path, root: Path) -> str:
    """A path below the data folder, or the whole path where it lies elsewhere."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def image_file(item: Item, listing: Listing) -> str:
    """An item's name; the path of its image where that lies elsewhere, and the name is one that it was given."""
    return item.name if item.image.is_relative_to(listing.root) else str(item.image)


def labels_file(item: Item, listing: Listing) -> str:
    """The item's own mask; its image, where one file holds the labels of all."""
    own = item.mask is not None and item.mask.suffix.lower() in SUFFIXES
    return relative(item.mask, listing.root) if item.mask and own else image_file(item, listing)


def files_of(item: Item, listing: Listing) -> set[str]:
    """The names under which findings may mention an item."""
    return {item.name, image_file(item, listing), labels_file(item, listing)}
