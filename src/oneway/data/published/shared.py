"""What the readers of published data sets share."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sized
from dataclasses import replace
from pathlib import Path

import numpy as np

from oneway.common.bounded import read_bounded
from oneway.common.errors import UserError
from oneway.data.dataset import Bytes, Item, Listing, in_order
from oneway.data.decode.images import SUFFIXES, hidden
from oneway.data.decode.masks import read_raw

MOST_BYTES = 2**24  # of a list
UNKNOWN = 254  # marks a number that stands for nothing: a byte that is neither a class index nor IGNORE


def read_ids(table: Mapping[int, int], expected: str, item: Item) -> Bytes:
    """H×W class indices, or IGNORE, of an item with a mask of numbers, 0 to 255; the table has what they stand for.

    Raises:
        UserError: The mask cannot be read, or has another number; says what is expected.
    """
    path = item.mask
    assert path is not None
    raw = read_raw(path)
    if raw.coloured:
        raise UserError(f"{path}: has colours, where each pixel should be a number. {expected}")
    meaning = np.full(256, UNKNOWN, dtype=np.uint8)
    meaning[list(table)] = list(table.values())
    within = raw.values.clip(0, 255)
    labels = meaning[within]
    unknown = (labels == UNKNOWN) | (within != raw.values)
    if unknown.any():
        row, column = np.unravel_index(unknown.argmax(), unknown.shape)
        raise UserError(
            f"{path}: the number {raw.values[row, column]} at row {row}, column {column} stands for nothing. {expected}"
        )
    return labels


def require_folder(root: Path | None, name: str) -> Path:
    """Return the folder of the data set called `name`; raises a UserError where it was not given, or is no folder."""
    if root is None:
        raise UserError(f"{name} is read from a folder: give it with --data DIR.")
    if not root.is_dir():
        problem = "not a folder" if root.exists() else "no such folder"
        raise UserError(f"{root}: {problem}. Unpack the archive of {name}, and give its folder with --data DIR.")
    return root


def first_with(inside: str, *folders: Path) -> Path:
    """The first of some folders that has one of a name in it; else the first."""
    return next((folder for folder in folders if (folder / inside).is_dir()), folders[0])


def pairs(root: Path, images: Path, masks: Path, suffixes: Collection[str] = (".jpg",)) -> tuple[Item, ...]:
    """The images in a folder, by default `NAME.jpg`, each with its mask in another, `NAME.png`."""
    files = [file for file in visible_files(images, "*") if file.suffix.lower() in suffixes]
    if not files:
        kinds = "NAME.jpg" if len(suffixes) == 1 else "NAME.png or .jpg"
        looked_for = f"{images}/{kinds}, with labels in {masks}/NAME.png"
        raise UserError(f"{images}: no image found; looked for {looked_for}. Give another folder with --data DIR.")
    (stem, count), *_ = Counter(file.stem for file in files).most_common(1)
    if count > 1:
        raise UserError(f"{images}: has {count} images called {stem}, for one mask. Keep one of them.")
    present = {file.stem: file for file in visible_files(masks, "*.png")}
    for file in files:
        if file.stem not in present:
            mask = masks / f"{file.stem}.png"
            raise UserError(f"{mask}: no such file, though {file} is there. Unpack the archives again.")
    return in_order(Item(file.relative_to(root).as_posix(), file, present[file.stem]) for file in files)


def read_list(path: Path, archive: str) -> list[str]:
    """The names in an official list, one on each line, and at least one."""
    if not path.is_file():
        raise UserError(f"{path}: no such list. Unpack {archive}, or give another folder with --data DIR.")
    try:
        text = read_bounded(path, MOST_BYTES).decode("utf-8-sig")  # editors on Windows put a mark first
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: no text in UTF-8 (byte {error.start}). Unpack {archive} again.") from None
    names = sorted({line.split()[0] for line in text.splitlines() if line.strip()})
    if not names:
        raise UserError(f"{path}: the list is empty. Unpack {archive} again, or give another folder with --data DIR.")
    return names


def incomplete(name: str, official: Mapping[str, int], *found: Sized) -> tuple[str, ...]:
    """A remark for each split of the data set called `name`, but one left out, that lacks published images."""
    return tuple(
        f"{len(items)} of the {count} images of {name} {split} are there."
        for (split, count), items in zip(official.items(), found, strict=True)
        if items and len(items) != count
    )


def visible_files(folder: Path, pattern: str) -> list[Path]:
    """Files that match, without hidden ones among them; nothing where there is no such folder."""
    return [path for path in folder.glob(pattern) if not hidden(path.relative_to(folder)) and path.is_file()]


def with_further_images(listing: Listing, folder: Path | None) -> Listing:
    """The data set, which trains on the images of a folder and its subfolders too, without labels."""
    decided = (*listing.selection.get("train", ()), folder and os.path.abspath(folder))
    train = listing.train if folder is None else in_order((*listing.train, *_further_images(folder, listing)))
    return replace(listing, train=train, selection={**listing.selection, "train": decided}, unlabelled=folder)


def _further_images(folder: Path, listing: Listing) -> Iterable[Item]:
    """The images of a folder, but for those that are listed, for whatever split.

    A folder in which masks of the data set turn up is refused: they would train as if they were photographs.
    """
    folder, root = (Path(os.path.abspath(path)) for path in (folder, listing.root))
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder of images without labels (--data.unlabelled).")
    files = [path for path in visible_files(folder, "**/*") if path.suffix.lower() in SUFFIXES]
    if not files:
        raise UserError(f"{folder}: no image found, nor in its subfolders (--data.unlabelled).")
    images = {item.image.resolve() for item in listing.items}
    masks = {item.mask.resolve() for item in listing.items if item.mask}
    for path in files:
        if (target := path.resolve()) in masks:
            raise UserError(f"{folder}: has masks in it, such as {path}. Give a folder of images (--data.unlabelled).")
        if target not in images:
            inside = path.is_relative_to(root)
            name = path.relative_to(root if inside else folder).as_posix()
            yield Item(name if inside else f"unlabelled/{name}", path)
