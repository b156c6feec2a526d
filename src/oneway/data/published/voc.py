"""Pascal VOC 2012 with its 21 classes, listed from its official layout, with the masks of SBD where they are there.

    JPEGImages/ID.jpg
    SegmentationClass/ID.png
    SegmentationClassAug/ID.png
    ImageSets/Segmentation/{train,val}.txt

Images that `train.txt` lists have the official masks. Of all others, those that have a mask in `SegmentationClassAug`
and do not validate train as well: with all of SBD, 10,582 in all, the set that is often called `trainaug`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.dataset import Colour, Item, Listing, in_order
from oneway.data.published.shared import (
    first_with,
    incomplete,
    read_ids,
    read_list,
    require_folder,
    visible_files,
)

CLASSES = (
    *"background aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike".split(),
    *"person pottedplant sheep sofa train tvmonitor".split(),
)
IDS = {index: index for index in range(len(CLASSES))} | {IGNORE: IGNORE}
EXPECTED = "Masks of VOC hold 0 to 20, and 255 along borders; SBD's are to be stored likewise."
OFFICIAL_COUNTS = {"train": 1464, "val": 1449}
WITH_SBD = 10_582
LISTS, IMAGES = "ImageSets/Segmentation", "JPEGImages"
MASKS, FURTHER_MASKS = "SegmentationClass", "SegmentationClassAug"


def colour_of(label: int) -> Colour:
    """The colour in which VOC shows a class: bits of its number, the lowest first, in the upper bits of channels."""
    red, green, blue = (
        sum((label >> (3 * bit + channel) & 1) << (7 - bit) for bit in range(3)) for channel in range(3)
    )
    return red, green, blue


def list_voc(root: Path | None) -> Listing:
    """Training images, with those of SBD, and validation images. `root` may be a folder above: `VOCdevkit`, say."""
    root = require_folder(root, "Pascal VOC 2012")
    root = first_with(IMAGES, root, root / "VOC2012", root / "VOCdevkit/VOC2012")
    lists = (root / LISTS / f"{split}.txt" for split in OFFICIAL_COUNTS)
    names = [read_list(path, "VOCtrainval_11-May-2012.tar") for path in lists]
    official, val = ([_item(root, name, MASKS) for name in each] for each in names)
    known = {*names[0], *names[1]}
    extra = sorted(path.stem for path in visible_files(root / FURTHER_MASKS, "*.png") if path.stem not in known)
    train = (*official, *(_item(root, name, FURTHER_MASKS) for name in extra))
    return Listing(
        root=root,
        classes=CLASSES,
        colours=tuple(colour_of(label) for label in range(len(CLASSES))),
        train=in_order(train),
        val=in_order(val),
        read_labels=partial(read_ids, IDS, EXPECTED),
        remarks=(*incomplete("VOC 2012", OFFICIAL_COUNTS, official, val), *_about_sbd(root, len(train))),
        label_coding="Pascal VOC, 21 classes",
        recipe="voc",
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
