"""A mask for each object, many for an image: `ID/images/ID.png` with `ID/masks/*.png`, or `masks/ID/*.png`.

What is not black in a mask belongs to the object; all objects are of one class.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from oneway.data.decode.images import SUFFIXES
from oneway.data.decode.masks import read_raw
from oneway.data.decode.outlines import Mask
from oneway.data.decode.regions import Region, Regions
from oneway.data.folder.description import DatasetPart, Description
from oneway.data.folder.formats.interface import Annotations, AnnotationSource
from oneway.data.folder.names import TEST, TRAIN, UNLABELLED, VAL
from oneway.data.folder.walk import choose_folder, entries_of, folders_in, walk

CLASS = "object"
IMAGES, MASKS = ("images", "image"), ("masks", "mask")
PARTS = frozenset((*TRAIN, *VAL, *UNLABELLED, *TEST))  # folders that are of no single image
LOOKED_AT = 32  # folders


def not_black(path: Path, size: tuple[int, int]) -> Mask:
    """H×W: what is not black in a mask."""
    raw = read_raw(path)
    values = raw.values
    if values.shape != size:
        sizes = [f"{width}×{height}" for height, width in (values.shape, size)]
        raise ValueError(f"a mask of {sizes[0]} pixels, for an image of {sizes[1]}")
    # The numbers of a palette say nothing: what is black may have any of them.
    shown = values if raw.palette is None else np.array([any(colour) for colour in raw.palette])[values]
    inside: Mask = np.asarray(shown != 0)
    return inside


def recognise(root: Path) -> Description | None:
    """A folder for each image, or one for its masks; in `train` and `val`, or right here."""
    train, val = (choose_folder(root, ".", names) for names in (TRAIN, VAL))
    part = _part(root, train or ".")
    return None if part is None else Description(train=part, val=_part(root, val) if train and val else None)


def _part(root: Path, folder: str) -> DatasetPart | None:
    images, masks = (choose_folder(root, folder, names) for names in (IMAGES, MASKS))
    if images and masks:
        stems = {
            Path(entry.name).stem for entry in entries_of(root / images) if not entry.is_dir(follow_symlinks=False)
        }
        inside = entries_of(root / masks)
        each = bool(inside) and all(entry.is_dir(follow_symlinks=False) and entry.name in stems for entry in inside)
        return DatasetPart(images=images, objects=masks) if each else None
    folders = folders_in(root / folder, LOOKED_AT)
    if any(name.lower() in PARTS for name in folders):
        return None
    inside_each = {name: choose_folder(root / folder / name, ".", IMAGES) for name in folders}
    alone = all(inner and len(entries_of(root / folder / name / inner)) == 1 for name, inner in inside_each.items())
    masked = any(choose_folder(root / folder / name, ".", MASKS) for name in folders)
    return DatasetPart(images=folder, objects=folder) if alone and masked else None


def read(source: AnnotationSource) -> Annotations:
    """Which masks are those of an image; they are read when they are painted."""
    below: dict[Path, list[Path]] = defaultdict(list)  # by folder: the masks in it
    for path in walk(source.labels, source.root, []):
        if path.suffix.lower() in SUFFIXES and (path.parent.name.lower() in MASKS or source.labels != source.folder):
            below[path.parent].append(path)
    pictures = frozenset(path for paths in below.values() for path in paths)
    masks = {image: found for image in source.images if image not in pictures and (found := _of(image, source, below))}
    return Annotations(
        names=(CLASS,),
        files={image: first for image, (first, *_) in masks.items()},
        empty=frozenset(),
        regions=lambda image: _regions(masks[image]),
        remarks=(f"Masks show one object each: all are of one class, {CLASS!r}.",),
        further={image: tuple(others) for image, (_, *others) in masks.items()},
        pictures=pictures,
    )


def _of(image: Path, source: AnnotationSource, below: Mapping[Path, list[Path]]) -> list[Path]:
    """The masks of an image: in the folder of its name, or in the one beside its own."""
    own = source.labels / image.relative_to(source.folder).with_suffix("")
    if own in below or image.parent.name.lower() not in IMAGES:
        return below.get(own, [])
    return next((below[folder] for name in MASKS if (folder := image.parent.parent / name) in below), [])


def _regions(masks: list[Path]) -> Regions:
    regions = (Region(f"mask {path.name}", CLASS, partial(not_black, path)) for path in masks)
    return Regions(masks[0].parent, tuple(regions))
