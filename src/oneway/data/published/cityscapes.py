"""Cityscapes, listed from its official layout.

    leftImg8bit/{train,val,train_extra}/CITY/NAME_leftImg8bit.png
    gtFine/{train,val}/CITY/NAME_gtFine_labelIds.png
    gtCoarse/train_extra/CITY/NAME_gtCoarse_labelIds.png

Files that end with `_labelTrainIds.png` are read where `_labelIds.png` are missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.dataset import Bytes, Colour, Item, Listing, in_order
from oneway.data.published.shared import incomplete, read_ids, require_folder, visible_files

TABLE: dict[int, tuple[str, Colour]] = {
    7: ("road", (128, 64, 128)),
    8: ("sidewalk", (244, 35, 232)),
    11: ("building", (70, 70, 70)),
    12: ("wall", (102, 102, 156)),
    13: ("fence", (190, 153, 153)),
    17: ("pole", (153, 153, 153)),
    19: ("traffic light", (250, 170, 30)),
    20: ("traffic sign", (220, 220, 0)),
    21: ("vegetation", (107, 142, 35)),
    22: ("terrain", (152, 251, 152)),
    23: ("sky", (70, 130, 180)),
    24: ("person", (220, 20, 60)),
    25: ("rider", (255, 0, 0)),
    26: ("car", (0, 0, 142)),
    27: ("truck", (0, 0, 70)),
    28: ("bus", (0, 60, 100)),
    31: ("train", (0, 80, 100)),
    32: ("motorcycle", (0, 0, 230)),
    33: ("bicycle", (119, 11, 32)),
}
"""Names and colours of the classes that are evaluated, by label id, in the order of their train ids."""

CLASSES = tuple(name for name, _ in TABLE.values())
COLOURS = tuple(colour for _, colour in TABLE.values())
LABEL_IDS = dict.fromkeys(range(34), IGNORE) | {label: index for index, label in enumerate(TABLE)}
TRAIN_IDS = {index: index for index in range(len(TABLE))} | {IGNORE: IGNORE}

IMAGE_ENDING = "_leftImg8bit.png"
TRAIN_IDS_ENDING = "_labelTrainIds.png"
OFFICIAL_COUNTS = {"train": 2975, "val": 500, "train_extra": 19998}
Coarse = Literal["none", "images", "labels"]


def list_cityscapes(
    root: Path | None, resolution: Literal["full", "half"] = "full", coarse: Coarse = "none"
) -> Listing:
    """Fine training and validation images with the 19 classes that are evaluated; whatever else is labelled is ignored.

    `half` resolution is 512×1024 pixels. Of `train_extra`, what trains too is nothing, its images (the paper's F_l, F_u
    ∪ C_u), or its images with their coarse labels (the paper's F_l, C_l).
    """
    root = require_folder(root, "Cityscapes")
    train, val = (_list(root, split, "gtFine") for split in ("train", "val"))
    extra = () if coarse == "none" else _list(root, "train_extra", "gtCoarse" if coarse == "labels" else None)
    return Listing(
        root=root,
        classes=CLASSES,
        colours=COLOURS,
        train=in_order((*train, *extra)),
        val=val,
        read_labels=read_labels,
        reduction=2 if resolution == "half" else 1,
        remarks=incomplete("Cityscapes", OFFICIAL_COUNTS, train, val, extra),
        label_coding="Cityscapes, 19 classes",
        selection={"train": (coarse,)},
        recipe="cityscapes" + ("-coarse" if coarse != "none" else "-half" if resolution == "half" else ""),
    )


def read_labels(item: Item) -> Bytes:
    """H×W train ids."""
    assert item.mask is not None
    if item.mask.name.endswith(TRAIN_IDS_ENDING):
        return read_ids(TRAIN_IDS, "Train ids of Cityscapes are 0 to 18, and 255 for no class.", item)
    return read_ids(LABEL_IDS, "Label ids of Cityscapes are 0 to 33; unpack its archives again.", item)


def _list(root: Path, split: str, masks: Literal["gtFine", "gtCoarse"] | None) -> tuple[Item, ...]:
    """The images of a split; with their labels, where the folder of those is given."""
    folder = root / "leftImg8bit" / split
    files = visible_files(folder, f"*/*{IMAGE_ENDING}")
    if not files:
        archive = f"leftImg8bit_{'trainextra' if split == 'train_extra' else 'trainvaltest'}.zip"
        raise UserError(
            f"{folder}: no image found; looked for {folder}/CITY/NAME{IMAGE_ENDING}. "
            f"Unpack {archive} in {root}, or give another folder with --data DIR."
        )
    return in_order(
        Item(file.relative_to(root).as_posix(), file, masks and _mask(file, root, split, masks)) for file in files
    )


def _mask(image: Path, root: Path, split: str, kind: Literal["gtFine", "gtCoarse"]) -> Path:
    start = root / kind / split / image.parent.name / f"{image.name.removesuffix(IMAGE_ENDING)}_{kind}"
    by_label, by_train_id = (start.with_name(start.name + ending) for ending in ("_labelIds.png", TRAIN_IDS_ENDING))
    for path in (by_label, by_train_id):
        if path.is_file():
            return path
    archive = "gtFine_trainvaltest.zip" if kind == "gtFine" else "gtCoarse.zip"
    raise UserError(
        f"{by_label}: no such file, nor {by_train_id.name}, though {image} is there. Unpack {archive} in {root}."
    )
