"""Pascal VOC 2012 with its 21 classes, listed from its official layout, with the masks of SBD where they are there.

    JPEGImages/ID.jpg
    SegmentationClass/ID.png
    SegmentationClassAug/ID.png
    ImageSets/Segmentation/{train,val}.txt

Images that `train.txt` lists have the official masks. Of all others, those that have a mask in `SegmentationClassAug`
and do not validate train as well: with all of SBD, 10,582 in all, the set that is often called `trainaug`.
"""

from __future__ import annotations

import os
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.dataset import Bytes, Colour, Item, Listing
from oneway.data.published import beside, further_images, in_order, read_ids, read_list, require_folder, visible_files

CLASSES = (
    *"background aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike".split(),
    *"person pottedplant sheep sofa train tvmonitor".split(),
)
IDS = {index: index for index in range(len(CLASSES))} | {IGNORE: IGNORE}
OFFICIAL_COUNTS = {"train": 1464, "val": 1449}
WITH_SBD = 10_582
LISTS, IMAGES, MASKS, FURTHER_MASKS = (
    "ImageSets/Segmentation",
    "JPEGImages",
    "SegmentationClass",
    "SegmentationClassAug",
)


def colour_of(label: int) -> Colour:
    """The colour in which VOC shows a class: bits of its number, the lowest first, in the upper bits of channels."""
    red, green, blue = (
        sum((label >> (3 * bit + channel) & 1) << (7 - bit) for bit in range(3)) for channel in range(3)
    )
    return red, green, blue


def list_voc(root: Path | None, unlabelled: Path | None = None) -> Listing:
    """Training images, with those of SBD, and validation images.

    Args:
        root: The folder with `JPEGImages`, or one above it: `VOCdevkit`, say.
        unlabelled: A folder of further images without labels.

    Raises:
        UserError: A folder or file is missing; says what was looked for.
    """
    root = beside(require_folder(root, "Pascal VOC 2012"), IMAGES, "VOC2012", "VOCdevkit/VOC2012")
    names = {
        split: read_list(root / LISTS / f"{split}.txt", "VOCtrainval_11-May-2012.tar") for split in OFFICIAL_COUNTS
    }
    official = {split: [_item(root, name, MASKS) for name in names[split]] for split in names}
    known = {*names["train"], *names["val"]}
    extra = sorted(path.stem for path in visible_files(root / FURTHER_MASKS, "*.png") if path.stem not in known)
    train = (*official["train"], *(_item(root, name, FURTHER_MASKS) for name in extra))
    val = in_order(official["val"])
    return Listing(
        root=root,
        classes=CLASSES,
        colours=tuple(colour_of(label) for label in range(len(CLASSES))),
        train=in_order((*train, *further_images(unlabelled, root, (*train, *val)))),
        val=val,
        read_labels=read_labels,
        remarks=(
            *(
                f"{len(official[split])} of the {count} images of VOC 2012 {split} are listed."
                for split, count in OFFICIAL_COUNTS.items()
                if len(official[split]) != count
            ),
            *_about_sbd(root, len(train)),
        ),
        label_coding="Pascal VOC, 21 classes",
        selection={"train": (unlabelled and os.path.abspath(unlabelled),)},
        recipe="voc",
        unlabelled=unlabelled,
    )


def _about_sbd(root: Path, count: int) -> tuple[str, ...]:
    if not (root / FURTHER_MASKS).is_dir():
        return (
            f"{root / FURTHER_MASKS} is not there: without the masks of SBD, {count} images train, not {WITH_SBD}.",
        )
    return () if count == WITH_SBD else (f"{count} images train; VOC 2012 with all of SBD has {WITH_SBD}.",)


def _item(root: Path, name: str, masks: str) -> Item:
    image, mask = root / IMAGES / f"{name}.jpg", root / masks / f"{name}.png"
    for path in (image, mask):
        if not path.is_file():
            raise UserError(f"{path}: no such file, though a list or a mask names it. Unpack the archives again.")
    return Item(f"{IMAGES}/{name}.jpg", image, mask)


def read_labels(item: Item) -> Bytes:
    """H×W class indices; borders are ignored."""
    assert item.mask is not None
    return read_ids(
        item.mask, IDS, "Masks of VOC hold 0 to 20, and 255 along borders; SBD's are to be stored likewise."
    )
