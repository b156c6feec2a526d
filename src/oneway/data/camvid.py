"""CamVid with 11 classes, listed from the layout that most of its copies have.

{train,val,test}/NAME.png or .jpg
{train,val,test}annot/NAME.png

A NAME begins with the drive in which the frame was filmed, such as 0006R0 of 0006R0_f00930. The official validation
frames are seconds of one drive; with a whole drive held out, models are told apart by what they make of another place.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE, SplitName
from oneway.data.dataset import Bytes, Colour, Item, Listing
from oneway.data.decode.images import SUFFIXES
from oneway.data.published import further_images, in_order, read_ids, require_folder, visible_files

TABLE: dict[str, Colour] = {
    "sky": (128, 128, 128),
    "building": (128, 0, 0),
    "pole": (192, 192, 128),
    "road": (128, 64, 128),
    "pavement": (60, 40, 222),
    "tree": (128, 128, 0),
    "sign symbol": (192, 128, 128),
    "fence": (64, 64, 128),
    "car": (64, 0, 128),
    "pedestrian": (64, 64, 0),
    "bicyclist": (0, 128, 192),
}
"""Names and colours of the classes, in the order of the numbers in masks."""

VOID = len(TABLE)
IDS = {index: index for index in range(VOID)} | {VOID: IGNORE, IGNORE: IGNORE}


def list_camvid(root: Path | None, unlabelled: Path | None = None, holdout_drive: str | None = None) -> Listing:
    """Training and validation frames with their labels, and the test frames where they are there.

    Args:
        root: The folder with `train`, `trainannot`, `val` and `valannot`.
        unlabelled: A folder of further images without labels.
        holdout_drive: The drive whose frames validate, whether the official split trains on them or validates; those
            of all other drives train.

    Raises:
        UserError: A folder or file is missing; says what was looked for.
    """
    root = require_folder(root, "CamVid")
    train, val = (_frames(root, split) for split in ("train", "val"))
    if holdout_drive is not None:
        train, val = _split_by_drive(root, (*train, *val), holdout_drive)
    test = _frames(root, "test") if (root / "test").is_dir() and (root / "testannot").is_dir() else ()
    return Listing(
        root=root,
        classes=tuple(TABLE),
        colours=tuple(TABLE.values()),
        train=(*train, *further_images(unlabelled, root, (*train, *val, *test))),
        val=val,
        test=test,
        read_labels=read_labels,
        label_coding="CamVid, 11 classes",
        selection=_selection(unlabelled, holdout_drive),
        recipe="camvid",
        unlabelled=unlabelled,
    )


def read_labels(item: Item) -> Bytes:
    """H×W class indices; void is ignored."""
    assert item.mask is not None
    return read_ids(item.mask, IDS, "Classes are 0 to 10, and 11 is void; for the 32 in colour, use the recipe folder.")


def _split_by_drive(root: Path, frames: Sequence[Item], drive: str) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """The frames of all other drives, and those of one."""
    drives = Counter(map(_drive, frames))
    if drive not in drives:
        found = ", ".join(f"{name} ({count})" for name, count in sorted(drives.items()))
        raise UserError(f"data.holdout_drive {drive}: {root} has no frame of it. Drives there, with frames: {found}.")
    if len(drives) == 1:
        raise UserError(
            f"data.holdout_drive {drive}: {root} has no other drive, and nothing would be left to train on."
        )
    return (
        in_order(item for item in frames if _drive(item) != drive),
        in_order(item for item in frames if _drive(item) == drive),
    )


def _drive(item: Item) -> str:
    return item.image.stem.partition("_")[0]


def _selection(unlabelled: Path | None, drive: str | None) -> dict[SplitName, Sequence[object]]:
    """What decided which files are in a split."""
    further = unlabelled and os.path.abspath(unlabelled)
    return {"train": (further,)} if drive is None else {"train": (further, drive), "val": (drive,)}


def _frames(root: Path, split: SplitName) -> tuple[Item, ...]:
    folder, masks = root / split, root / f"{split}annot"
    files = [file for file in visible_files(folder, "*") if file.suffix.lower() in SUFFIXES]
    if not files:
        raise UserError(
            f"{folder}: no image found; looked for {folder}/NAME.png or .jpg, with labels in {masks}/NAME.png. "
            "Give the folder of CamVid with --data DIR."
        )
    (stem, count), *_ = Counter(file.stem for file in files).most_common(1)
    if count > 1:
        raise UserError(f"{folder}: has {count} images called {stem}, for one mask. Keep one of them.")
    for file in files:
        if not (mask := masks / f"{file.stem}.png").is_file():
            raise UserError(f"{mask}: no such file, though {file} is there. Add the mask, or remove the image.")
    return in_order(Item(file.relative_to(root).as_posix(), file, masks / f"{file.stem}.png") for file in files)
