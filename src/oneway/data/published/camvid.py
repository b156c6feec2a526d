"""CamVid with 11 classes, listed from the layout that most of its copies have.

{train,val,test}/NAME.png or .jpg
{train,val,test}annot/NAME.png

A NAME begins with the drive in which the frame was filmed, such as 0006R0 of 0006R0_f00930. The official validation
frames are seconds of one drive; with a whole drive held out, models are told apart by what they make of another place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.dataset import Colour, Item, Listing, in_order
from oneway.data.decode.images import SUFFIXES
from oneway.data.published.shared import pairs, read_ids, require_folder

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
EXPECTED = "Classes are 0 to 10, and 11 is void; for the 32 in colour, use the recipe folder."


def list_camvid(root: Path | None, holdout_drive: str | None = None) -> Listing:
    """Training and validation frames with their labels, and the test frames where they are there.

    With a drive held out, its frames validate, whether the official split trains on them or validates; all others
    train.
    """
    root = require_folder(root, "CamVid")
    train, val = (_frames(root, split) for split in ("train", "val"))
    test = _frames(root, "test") if (root / "test").is_dir() and (root / "testannot").is_dir() else ()
    if holdout_drive is not None:
        train, val = _split_by_drive(root, (*train, *val), holdout_drive)
    drive = () if holdout_drive is None else (holdout_drive,)
    return Listing(
        root=root,
        classes=tuple(TABLE),
        colours=tuple(TABLE.values()),
        train=train,
        val=val,
        test=test,
        read_labels=partial(read_ids, IDS, EXPECTED),
        label_coding="CamVid, 11 classes",
        selection={"train": drive, "val": drive} if drive else {},
        recipe="camvid",
    )


def _frames(root: Path, split: str) -> tuple[Item, ...]:
    return pairs(root, root / split, root / f"{split}annot", SUFFIXES)


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
