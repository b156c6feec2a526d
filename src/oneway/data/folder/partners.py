"""Where folders have unusual names: which of them holds the images of the masks, or those that are annotated."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from oneway.common.run_files import is_output
from oneway.data.dataset import Item
from oneway.data.folder.description import FILE, DatasetPart, Description, read_description
from oneway.data.folder.layout import read_layout
from oneway.data.folder.mask_summary import looks_like_mask
from oneway.data.folder.names import IMAGES, MASK_FOLDERS, PHOTOS, TEST, TRAIN, UNLABELLED, VAL
from oneway.data.folder.pairing import LOSSY, unmarked
from oneway.data.folder.parts import Parts, read_part, read_parts
from oneway.data.folder.walk import MOST_BELOW, folders_in, images_in

OTHER_PARTS = frozenset((*TRAIN, *VAL, *TEST, *UNLABELLED))  # of a data set than the images of masks beside them


def described_parts(root: Path) -> tuple[Description, Parts, bool]:
    """How a folder is read, its images with their labels, and whether the folder of images was guessed."""
    description = read_layout(root)
    parts = read_parts(root, description)
    partner = None if any(item.mask for item in parts.train) else _find_partner(root, description)
    if partner is not None:
        description = read_layout(root, (*IMAGES, partner))
        parts = read_parts(root, description)
    if (alone := _without_masks(root, description, parts.train)) is not None:
        description = description.model_copy(update={"train": alone})
        parts = read_parts(root, description)
    return description, parts, partner is not None and partner not in PHOTOS


def _find_partner(root: Path, description: Description) -> str | None:
    """What the folder of images beside the masks is called, in lower case, if none of the known names pairs anything.

    It is one of the usual names, or else the only folder there with images for at least half of the masks.
    """
    part = description.train
    if part is None or part.masks is None:
        return None
    parent, fitting = root / PurePosixPath(part.masks).parent, []
    for folder in folders_in(parent, MOST_BELOW):
        name = folder.lower()
        if name in OTHER_PARTS or name.startswith(tuple(MASK_FOLDERS)):
            continue
        other = read_layout(root, (*IMAGES, name))
        if other.train is None or other.train.masks is None or other.train == part or is_output(parent / folder):
            continue
        pairs = sum(item.mask is not None for item in read_part(root, other, "train", [])[0])
        masks = len(images_in(root / other.train.masks, root, [], masks=True))
        if pairs and (name in PHOTOS or 2 * pairs >= masks):
            fitting.append(name)
    usual = [name for name in PHOTOS if name in fitting]
    return next(iter(usual or fitting)) if usual or len(fitting) == 1 else None


def _without_masks(root: Path, description: Description, train: list[Item]) -> DatasetPart | None:
    """The only folder with images that annotations list, where masks of the same names are in another beside it."""
    part = description.train
    said = read_description(root / FILE).train if (root / FILE).is_file() else None
    if said is not None or part is None or part.annotations is None or part.images != ".":
        return None
    folders = {item.name.partition("/")[0] for item in train if item.mask and "/" in item.name}
    if len(folders) != 1 or any(item.mask and "/" not in item.name for item in train):
        return None
    inside = {item.image.stem for item in train if item.name.partition("/")[0] in folders}
    outside = [item.image for item in train if item.name.partition("/")[0] not in folders]
    others = (path for path in outside if unmarked(path.stem) in inside and path.suffix.lower() not in LOSSY)
    first = next(others, None)
    return part.model_copy(update={"images": folders.pop()}) if first and looks_like_mask(first) else None
