"""Labels that could be read in place of those that are: said with the line that reads them, if nobody has chosen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from oneway.common.errors import UserError
from oneway.common.words import counted, listed
from oneway.data.dataset import Item
from oneway.data.decode.images import SUFFIXES
from oneway.data.folder.description import FILE
from oneway.data.folder.files import Found
from oneway.data.folder.formats.interface import begins_with, files_with
from oneway.data.folder.mask_summary import looks_like_mask
from oneway.data.folder.names import INSTANCES
from oneway.data.folder.pairing import LOSSY, unmarked
from oneway.data.folder.walk import folders_in, require_inside, stem_below, walk
from oneway.data.folder.yaml_text import to_flow

FITS = 0.5  # of the images that have a mask, the share that has one there as well
ANNOTATIONS = {
    "coco": (".json", re.compile(rb'\A\s*\{.*"(images|annotations|categories)"\s*:\s*\[', re.DOTALL)),
    "cvat": (".xml", re.compile(rb"<annotations>")),
}
"""Suffixes of files that hold the annotations of many images, and what tells them from others."""

SHOWN = 4  # files that a remark names


def remark_other_labels(found: Found) -> Iterator[str]:
    """A remark for each kind of labels beside those that are read, or on folders that are read together."""
    part = found.description.train
    if part is None or (found.root / FILE).is_file():
        return
    if part.masks is not None and part.masks == part.images:
        yield _read_together(found, part.images)
    elif part.masks is not None:
        yield from _other_masks(found, part.images, part.masks)
    if part.masks is not None:
        yield from _annotations_beside_masks(found, part.images, part.masks)
    if part.annotations is not None and part.images != ".":
        yield from _masks_beside_annotations(found, part.images, part.annotations[1])


def _read_together(found: Found, folder: str) -> str:
    place = found.root / folder
    images = [item.image for item in found.train if item.image.is_relative_to(place)]  # others are without labels
    inside = dict.fromkeys(stem_below(image, place).split("/")[0] for image in images)
    return f"Images and masks are those of {listed(inside)}, read together; to read one alone, name that folder."


def _other_masks(found: Found, images: str, masks: str) -> Iterator[str]:
    labelled = [item for item in found.train if item.mask]
    for folder in _folders_beside(found, masks):
        count = 0 if PurePosixPath(folder).name.lower() in INSTANCES else count_masks(found, folder, labelled)
        if fits_as_well(count, labelled):
            yield (
                f"Masks are those in {masks}; the ones in {folder} fit as well ({count} of {len(labelled)}). To "
                f"read these, write `train: {{images: {images}, masks: {folder}}}` into {FILE}."
            )


def _annotations_beside_masks(found: Found, images: str, masks: str) -> Iterator[str]:
    for key, (suffix, sign) in ANNOTATIONS.items():
        files = [file for file in files_with(suffix, found.root, ".") if not (found.root / file).is_symlink()]
        if held := [file for file in files if begins_with(sign, found.root / file)]:
            yield (
                f"Labels are the masks in {masks}; the annotations in {listed(held, SHOWN)} are not read. To read "
                f"these instead, write `train: {to_flow({'images': images, key: held[0]})}` into {FILE}."
            )


def _masks_beside_annotations(found: Found, images: str, annotations: str) -> Iterator[str]:
    for folder in _folders_beside(found, images):
        if count := count_masks(found, folder, found.train):
            yield (
                f"Labels are those of {annotations}; {counted(count, 'mask')} in {folder} with the names of "
                f"images {'is' if count == 1 else 'are'} not read. To read masks instead, write "
                f"`train: {to_flow({'images': images, 'masks': folder})}` into {FILE}."
            )


def _folders_beside(found: Found, folder: str) -> Iterator[str]:
    """The folders beside one that is read, by their paths below the root, but for those that have a part to play."""
    parent = PurePosixPath(folder).parent
    beside = ((parent / name).as_posix() for name in folders_in(found.root / parent))
    return (folder for folder in beside if not found.is_taken(folder))


def count_masks(found: Found, folder: str, images: Sequence[Item]) -> int:
    """How many of the images have a mask in a folder; none if what is there are no masks."""
    try:
        files = walk(found.root / folder, found.root, [])
        masks = {unmarked(path.stem): path for path in files if path.suffix.lower() in SUFFIXES - {*LOSSY}}
        fitting = [masks[item.image.stem] for item in images if item.image.stem in masks]
        return len(fitting) if fitting and looks_like_mask(require_inside(fitting[0], found.root)) else 0
    except UserError:
        return 0


def fits_as_well(count: int, labelled: Sequence[Item]) -> bool:
    """Whether a folder with so many masks for the images that have one could be read in place of theirs."""
    return count >= max(1, FITS * len(labelled))
