"""Which files of a folder make a data set: its training, validation and unlabelled images, with their masks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from oneway.common.errors import UserError
from oneway.data.dataset import Item
from oneway.data.decode.coco import Coco
from oneway.data.folder.description import FILE, Description, read_description
from oneway.data.folder.layout import Problem, images_in, recognise, require_inside
from oneway.data.folder.pairs import Pairs, name_below, pair, subfolder
from oneway.data.folder.unsupported import unsupported_images

ELSEWHERE = "unlabelled"
"""What the names of images from another folder begin with."""


@dataclass(frozen=True)
class Found:
    """The files of a data set, none of them decoded, and what is known about them."""

    root: Path
    description: Description
    """As read, and with the folders that were found; the classes may still be unknown."""

    train: tuple[Item, ...]
    """Those with labels first, each kind in order of name; nothing is held out yet."""

    val: tuple[Item, ...]
    """All with labels; none where there is no validation set."""

    problems: tuple[Problem, ...]
    """What is wrong with single files, though the others can be used."""

    unlabelled: Path | None
    """Another folder, whose images are among those of training."""

    outlines: Mapping[str, tuple[Coco, str]]
    """By name of item, where labels come from COCO: the annotations, and the file name in them."""


def find(root: Path, unlabelled: Path | None = None) -> Found:
    """Finds the training, validation and unlabelled images of a folder, with their masks.

    Args:
        root: The data folder; nothing outside is read.
        unlabelled: Another folder, all of whose images join the training set without labels.

    Raises:
        UserError: A folder is missing or without an image, or a path leads out of it.
    """
    _require_folder(root)
    description = _with_folders(root)
    problems: list[Problem] = []
    train, val = (_pairs(root, description, key, problems) for key in ("train", "val"))
    for item in val.items:
        if item.mask is None:
            problems.append(Problem(item.image, "left out: an image without labels cannot validate."))
    taken = _files(val.items)
    items = [item for item in train.items if item.image not in taken]
    for name in description.unlabelled:
        taken |= _files(items)
        images = images_in(subfolder(root, name, "unlabelled"), root, problems)
        items += [Item(name_below(root, image), image) for image in images if image not in taken]
    if unlabelled is not None:
        items += _from_elsewhere(unlabelled, items, taken | _files(items), problems)
    if not items:
        raise UserError(
            f"{root}: no image found{unsupported_images(problems)}. Put images into {root / 'images'}, or say in "
            f"{FILE} where they are."
        )
    return Found(
        root=root,
        description=description,
        train=tuple(sorted(items, key=lambda item: (item.mask is None, item.name))),
        val=tuple(item for item in val.items if item.mask),
        problems=tuple(problems),
        unlabelled=unlabelled,
        outlines=_outlines(train, val),
    )


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}.")


def _with_folders(root: Path) -> Description:
    """The description in the folder, if there is one, with the folders it does not name."""
    file = require_inside(root / FILE, root)
    if (misnamed := file.with_suffix(".yml")).exists():
        raise UserError(f"{misnamed}: would not be read. Call it {FILE}.")
    given = read_description(file) if file.is_file() else Description()
    if given.train is not None:
        return given
    try:
        layout = recognise(root)
        return Description(
            classes=given.classes,
            colours=given.colours,
            ignore=given.ignore,
            train=layout.train,
            val=layout.val,
            unlabelled=tuple(dict.fromkeys((*layout.unlabelled, *given.unlabelled))),
        )
    except ValidationError as error:
        raise UserError(f"{file}: {error.errors()[0]['msg'].removeprefix('Value error, ')}.") from None


def _pairs(root: Path, description: Description, key: Literal["train", "val"], problems: list[Problem]) -> Pairs:
    part = description.train if key == "train" else description.val
    pairs = pair(root, part, key) if part else Pairs((), ())
    problems += pairs.problems
    return pairs


def _files(items: Iterable[Item]) -> set[Path]:
    return {path for item in items for path in (item.image, item.mask) if path}


def _from_elsewhere(folder: Path, items: list[Item], taken: set[Path], problems: list[Problem]) -> list[Item]:
    """The images of another folder that are not among the items yet, under names that no item has."""
    _require_folder(folder)
    prefix = ELSEWHERE
    while any(item.name.startswith(f"{prefix}/") for item in items):
        prefix += "_"
    used = {path.resolve() for path in taken}
    images = images_in(folder, folder, problems)
    return [Item(f"{prefix}/{name_below(folder, image)}", image) for image in images if image.resolve() not in used]


def _outlines(*parts: Pairs) -> dict[str, tuple[Coco, str]]:
    files = [part.coco for part in parts if part.coco]
    for coco in files[1:]:
        if coco.classes != files[0].classes:
            raise UserError(f"{coco.path}: its categories differ from those of {files[0].path}. Give both the same.")
    return {name: (part.coco, file_name) for part in parts if part.coco for name, file_name in part.listed.items()}
