"""Which files of a folder belong to a data set that it is: masks, and images that have labels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from oneway.common.errors import UserError
from oneway.data.folder import FILE, find
from oneway.data.folder.names import IMAGES, MASK_FOLDERS
from oneway.data.folder.unused import labelled_apart
from oneway.data.folder.walk import choose_folder


def masks_in(folder: Path) -> Callable[[Path], bool]:
    """Whether a file below a folder is a mask: of a data set that it is, or in a folder that lies beside its images."""
    pairs: set[Path] = set()
    folders: list[Path] = []
    with suppress(UserError):  # one that cannot be trained on may still hold photos
        found, described = find(folder), (folder / FILE).is_file()
        folders = [(folder / part.masks).resolve() for part in found.description.parts if part.masks]
        files = [(item.image, item.mask) for item in (*found.train, *found.val, *found.test) if item.mask]
        files += [pair for apart in labelled_apart(found).values() for pair in apart]
        # Unless someone says so, a.png beside a.jpg may be another photo.
        pairs = {mask.resolve() for image, mask in files if described or mask.with_suffix("") != image.with_suffix("")}

    @cache
    def beside_images(place: Path) -> bool:
        return place.name.lower() in MASK_FOLDERS and any(
            choose_folder(place.parent, ".", (name,), with_images=True) for name in IMAGES
        )

    def is_mask(file: Path) -> bool:
        target = file.resolve()
        above = [place for place in file.parents if place != folder and place.is_relative_to(folder)]
        return (
            target in pairs or any(target.is_relative_to(place) for place in folders) or any(map(beside_images, above))
        )

    return is_mask


def labelled_in(folder: Path) -> set[Path]:
    """The images with labels of a data set, and those of test sets beside it."""
    labelled: set[Path] = set()
    if folder.is_dir():
        with suppress(UserError):
            found = find(folder)
            labelled = {item.image.resolve() for item in (*found.train, *found.val, *found.test) if item.labelled}
            labelled |= {image.resolve() for pairs in labelled_apart(found).values() for image, _ in pairs}
    if not labelled:
        raise UserError(f"--unlabelled: no labels are found in {folder}. Give the folder that holds images and masks.")
    return labelled
