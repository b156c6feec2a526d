"""Which files of a folder make a data set: its training, validation and unlabelled images, with their masks.

The mask of an image, and its entry in a file of annotations, have the same path as the image, but for the suffix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pydantic import ValidationError

from oneway.common.errors import UserError, missing
from oneway.common.run_files import is_output
from oneway.common.threads import in_threads
from oneway.common.words import listed
from oneway.data.cache.unpack import unzip_command
from oneway.data.dataset import Item
from oneway.data.folder.description import FILE, DatasetPart, Description, read_description
from oneway.data.folder.formats import READERS, Annotations, AnnotationSource
from oneway.data.folder.infer import Inferred
from oneway.data.folder.layout import recognise
from oneway.data.folder.mask_summary import looks_like_mask
from oneway.data.folder.names import IMAGES, MASK_FOLDERS, MASKS, PHOTOS, TEST, TRAIN, UNLABELLED, VAL
from oneway.data.folder.pairing import (
    LOSSY,
    mismatches,
    pair_beside,
    pair_flat_masks,
    pair_masks,
    stems,
    stems_below,
    unmarked,
)
from oneway.data.folder.walk import Problem, folders_in, images_in, require_inside, unsupported_images
from oneway.data.name_lists import names_in_list
from oneway.data.pictures import is_marked

ELSEWHERE = "unlabelled"  # what the names of images from another folder begin with
MOST_BELOW = 32  # subfolders that are looked at
OTHER_PARTS = frozenset((*TRAIN, *VAL, *TEST, *UNLABELLED))  # of a data set than the images of masks beside them


@dataclass(frozen=True)
class Found:
    """The files of a data set, none of them decoded, and what is known about them."""

    root: Path
    description: Description
    """What `dataset.yaml` says, with the folders that were found; the classes are unknown until they are inferred."""

    train: tuple[Item, ...]  # those with labels first, each kind in order of name; nothing is held out yet
    val: tuple[Item, ...]  # all with labels; none where there is no validation set
    problems: tuple[Problem, ...]  # what is wrong with single files, though the others can be used
    unlabelled: Path | None  # another folder, whose images are among those of training
    annotations: tuple[Annotations, ...] = ()  # where labels come from these, and not from masks
    bare: tuple[str, ...] = ()  # names of images that they list, and on which nothing is annotated
    guessed: bool = False  # whether the folder of images was known by the names of its files alone
    inferred: Inferred | None = None  # how the classes of masks were, where no description gives them
    read_as: str = ""  # as in a listing


def find(root: Path, unlabelled: Path | None = None) -> Found:
    """Find the training, validation and unlabelled images of a folder, with their masks.

    Args:
        root: The data folder; nothing outside is read.
        unlabelled: Another folder, all of whose images join the training set without labels.

    Raises:
        UserError: A folder is missing or without an image, or a path leads out of it.
    """
    _require_folder(root)
    description = _with_folders(root)
    pairs = _pair(root, description)
    partner = None if any(item.mask for item in pairs.train) else _find_partner(root, description)
    if partner is not None:
        description = _with_folders(root, (*IMAGES, partner))
        pairs = _pair(root, description)
    if (alone := _without_masks(root, description, pairs.train)) is not None:
        description = description.model_copy(update={"train": alone})
        pairs = _pair(root, description)
    train, val, annotations, problems = pairs
    _refuse_other_classes(annotations)
    bare = [item.name for item in (*train, *val) if any(item.image in found.empty for found in annotations)]
    if description.train and description.val and description.train.images == description.val.images:
        val = [item for item in val if item.mask]  # the others may train
    for item in val:
        if item.mask is None:
            problems.append(Problem(item.image, "left out: an image without labels cannot validate."))
    taken = _files(val) - ({found for one in annotations for found in one.files.values()})
    items = [item for item in train if item.image not in taken]
    for name in description.unlabelled:
        taken |= _files(items)
        images = images_in(_subfolder(root, name, "unlabelled"), root, problems)
        items += [Item(_name_below(root, image), image) for image in images if image not in taken]
    if unlabelled is not None:
        items += _from_elsewhere(unlabelled, items, taken | _files(items), problems)
    if not items and val:
        raise UserError(
            f"{root}: all images of `train` are those of `val` as well, so that none is left to train. Name others in "
            f"{FILE}, or leave out `val`: some of the labelled images are then held out to validate."
        )
    if not items:
        way_out = name_another(root) or f"Put images into {root / 'images'}, or say in {FILE} where they are."
        raise UserError(f"{root}: no image found{unsupported_images(problems)}. {way_out}")
    return Found(
        root=root,
        description=description,
        train=tuple(sorted(items, key=lambda item: (item.mask is None, item.name))),
        val=tuple(item for item in val if item.mask),
        problems=tuple(dict.fromkeys(problems)),
        unlabelled=unlabelled,
        annotations=annotations,
        bare=tuple(dict.fromkeys(bare)),
        guessed=partner is not None and partner not in PHOTOS,
    )


def name_another(root: Path) -> str:
    """A sentence that names the data set which the user must have meant, one folder above or below; or nothing."""
    if above := _above(root):
        return f"It is part of {above}, which looks like a data set: name that folder."
    folders = (root / name for name in folders_in(root, MOST_BELOW))
    below = [path for path in folders if not is_output(path) and _labelled_parts(path)]
    if len(below) > 1:
        return (
            f"{listed(below)} look like data sets: name one of them. Where their masks mean the same, "
            f"`train: {{images: ., masks: .}}` in {root / FILE} reads all, and `classes` there names what they hold."
        )
    if below and (file := _annotations_alone(below[0])):
        return f"{file} holds annotations, and no image lies beside it: move it into {root}, beside the images."
    return f"{below[0]} looks like a data set: name that folder." if below else ""


def _annotations_alone(folder: Path) -> Path | None:
    """The file of annotations in a folder without images, as a tool's export without images is unpacked."""
    annotated = (folder / part.annotations[1] for part in _labelled_parts(folder) if part.annotations)
    file = next(annotated, folder)
    return file if file.is_file() and not images_in(folder, folder, []) else None


def _above(root: Path) -> Path | None:
    """The farthest folder, of the two above, that is a data set whose images or masks are in this one."""
    found, above, inside = None, root, root.resolve()
    for _ in range(2):
        called = above.resolve().name.lower()
        above = above.parent if above.name not in ("", "..") else above / ".."
        # Others may have anything above them, which would take long to look at.
        if called in (*IMAGES, *MASK_FOLDERS, *TRAIN, *VAL, *UNLABELLED) or (above / FILE).is_file():
            places = [place for part in _labelled_parts(above) for place in (part.images, part.masks) if place]
            if any((above / place).resolve() == inside for place in places):
                found = above
    return found


def _labelled_parts(root: Path) -> list[DatasetPart]:
    """What has labels in a folder: training and validation images, or nothing."""
    try:
        return [part for part in _with_folders(root).parts if part.masks or part.annotations]
    except UserError:
        return []


def _refuse_other_classes(annotations: tuple[Annotations, ...]) -> None:
    for one, other in pairwise(annotations):
        if one.listed and one.names != other.names:
            files = [next(iter(found.files.values()), "nothing") for found in (other, one)]
            raise UserError(f"{files[0]}: its categories differ from those of {files[1]}. Give both the same.")


def _require_folder(folder: Path) -> None:
    if folder.suffix.lower() == ".zip" and folder.is_file():
        raise UserError(f"{folder}: an archive. Unpack it, and name the folder: {unzip_command(folder)}")
    if not folder.exists():
        raise missing(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: not a folder. Folders and .zip files are read; unpack any other archive.")


def _with_folders(root: Path, names: tuple[str, ...] = IMAGES) -> Description:
    """The description in the folder, if there is one, with the folders it does not name; see `recognise`."""
    file = require_inside(root / FILE, root)
    if (misnamed := file.with_suffix(".yml")).exists():
        raise UserError(f"{misnamed}: would not be read. Call it {FILE}.")
    given = read_description(file) if file.is_file() else Description()
    if given.train is not None:
        return given
    try:
        layout = recognise(root, names)
        said = {key: getattr(given, key) for key in given.model_fields_set}
        unlabelled = tuple(dict.fromkeys((*layout.unlabelled, *given.unlabelled)))
        return Description(**said | {"train": layout.train, "val": layout.val, "unlabelled": unlabelled})
    except ValidationError as error:
        raise UserError(f"{file}: {error.errors()[0]['msg'].removeprefix('Value error, ')}.") from None


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
        other = _with_folders(root, (*IMAGES, name))
        if other.train is None or other.train.masks is None or other.train == part or is_output(parent / folder):
            continue
        pairs = sum(item.mask is not None for item in _pair_part(root, other, "train", [])[0])
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


def _files(items: Iterable[Item]) -> set[Path]:
    return {path for item in items for path in (item.image, item.mask) if path}


def _name_below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _subfolder(root: Path, name: str, key: str) -> Path:
    """The folder that `key` of a description names; a UserError if it is missing or outside."""
    folder = require_inside(root / name, root)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder, though `{key}` names it.")
    return folder


def _from_elsewhere(folder: Path, items: list[Item], taken: set[Path], problems: list[Problem]) -> list[Item]:
    """The images of another folder that are not among the items yet, under names that no item has."""
    _require_folder(folder)
    prefix = ELSEWHERE
    while any(item.name.startswith(f"{prefix}/") for item in items):
        prefix += "_"
    used = {path.resolve() for path in taken}
    passed: list[Problem] = []
    if not (images := images_in(folder, folder, passed)):
        raise UserError(
            f"{folder}: no image found{unsupported_images(passed)}. Give another folder of unlabelled images."
        )
    problems += passed
    return [Item(f"{prefix}/{_name_below(folder, image)}", image) for image in images if image.resolve() not in used]


class _Pairs(NamedTuple):
    """The images of a folder in order of name, with their labels."""

    train: list[Item]
    val: list[Item]
    annotations: tuple[Annotations, ...]
    problems: list[Problem]


def _pair(root: Path, description: Description) -> _Pairs:
    """The images of both parts of a folder, and their labels."""
    problems: list[Problem] = []
    (train, taught), (val, validated) = (_pair_part(root, description, key, problems) for key in ("train", "val"))
    return _Pairs(train, val, tuple(found for found in (taught, validated) if found), problems)


def _pair_part(
    root: Path, description: Description, key: str, problems: list[Problem]
) -> tuple[list[Item], Annotations | None]:
    """The images of a part of the folder in order of name, which a description calls `key`, and their labels."""
    part: DatasetPart | None = getattr(description, key)
    if part is None:
        return [], None
    folder = _subfolder(root, part.images, f"{key}.images")
    files = images_in(folder, root, problems)
    annotations = None
    if part.annotations is not None:
        reader, place = part.annotations
        labels, crowds = require_inside(root / place, root), description.crowds == "ignore"
        annotations = READERS[reader](AnnotationSource(root, folder, files, labels, problems, crowds))
        without = annotations.empty if description.unannotated == "unlabelled" else ()
        masks = {image: file for image, file in annotations.files.items() if image not in without}
        further = {image: annotations.further.get(image, ()) for image in masks}
        items = [
            Item(_name_below(root, image), image, masks.get(image), further.get(image, ()))
            for image in files
            if image not in annotations.pictures
        ]
    else:
        items = _masked(root, folder, files, part, key, problems)
    if part.list is not None:
        items = _only_listed(require_inside(root / part.list, root), items, problems)
    return sorted(items, key=lambda item: item.name), annotations


def _only_listed(file: Path, items: list[Item], problems: list[Problem]) -> list[Item]:
    """The items, of which those that a file does not list are without labels."""
    named, unknown = names_in_list(file, [item.name for item in items])
    for entry in unknown:
        problems.append(Problem(file, f"lists {entry!r:.200}, and there is no such image."))
    without = [item.name for item in items if item.name in named and item.mask is None]
    if without:
        problems.append(Problem(file, f"lists {len(without)} images without labels, {without[0]} among them."))
    return [item if item.name in named else replace(item, mask=None, further=(), predicted=False) for item in items]


def _masked(
    root: Path, folder: Path, files: list[Path], part: DatasetPart, key: str, problems: list[Problem]
) -> list[Item]:
    """Images with masks beside them, or in a folder of their own; a prediction serves where there is no other mask."""
    if part.masks is None:
        images, masks = pair_beside(stems(files, folder))
        predicted = _predictions([path for paths in masks.values() for path in paths])
        masks = {stem: sorted(paths, key=predicted.__contains__) for stem, paths in masks.items()}
    else:
        place = _subfolder(root, part.masks, f"{key}.masks")
        found = images_in(place, root, problems, masks=True)
        if place == folder:
            images, drawn = (stems_below(paths, folder, names) for paths, names in ((files, IMAGES), (found, MASKS)))
        else:
            images = stems(sorted({*files} - {*found}), folder)  # where one folder is inside the other
            drawn = stems(found, place)
        predicted = _predictions(found)
        sides = [
            {stem: [path for path in drawn[stem] if (path in predicted) == made] for stem in drawn} for made in (0, 1)
        ]
        pair = pair_masks
        if folder != root and pair_masks(images, drawn).keys().isdisjoint(images):
            pair = pair_flat_masks
        masks, further = (pair(images, {stem: paths for stem, paths in side.items() if paths}) for side in sides)
        for stem, paths in further.items():
            masks[stem] = [*masks.get(stem, ()), *paths]
    problems += mismatches(images, masks, predicted)
    first = {stem: paths[0] for stem, paths in masks.items()}
    return [
        Item(_name_below(root, image), image, first.get(stem), predicted=first.get(stem) in predicted)
        for stem, (image, *_) in images.items()
    ]


def _predictions(masks: list[Path]) -> set[Path]:
    """The masks that `oneway predict` wrote, and no program has saved since."""
    pictures = [path for path in masks if path.suffix.lower() == ".png"]
    made = in_threads(partial(is_marked, verb="predict"), pictures)
    return {path for path, is_made in zip(pictures, made, strict=True) if is_made}
