"""Which files of a folder make a data set: its training, validation and unlabelled images, with their masks.

The mask of an image, and its entry in a file of annotations, have the same path as the image, but for the suffix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath

from oneway.common.errors import UserError, missing
from oneway.common.run_files import is_output
from oneway.data.cache.unpack import unzip_command
from oneway.data.dataset import Item, in_order
from oneway.data.folder.another import name_another
from oneway.data.folder.description import FILE, DatasetPart, Description, read_description
from oneway.data.folder.formats import Annotations
from oneway.data.folder.inferred import Inferred
from oneway.data.folder.layout import read_layout
from oneway.data.folder.mask_summary import looks_like_mask
from oneway.data.folder.names import IMAGES, MASK_FOLDERS, PHOTOS, TEST, TRAIN, UNLABELLED, VAL
from oneway.data.folder.pairing import LOSSY, unmarked
from oneway.data.folder.parts import Parts, name_below, read_part, read_parts, shows_background, subfolder
from oneway.data.folder.walk import MOST_BELOW, Problem, folders_in, images_in, unsupported_images

ELSEWHERE = "unlabelled"  # what the names of images from another folder begin with
OTHER_PARTS = frozenset((*TRAIN, *VAL, *TEST, *UNLABELLED))  # of a data set than the images of masks beside them


@dataclass(frozen=True)
class Found:
    """The files of a data set, none of them decoded, and what is known about them."""

    root: Path
    description: Description
    """What `dataset.yaml` says, with the folders that were found; the classes are unknown until they are inferred."""

    train: tuple[Item, ...]  # those with labels first, each kind in order of name; nothing is held out yet
    val: tuple[Item, ...]  # all with labels; none where there is no validation set
    test: tuple[Item, ...]  # likewise
    problems: tuple[Problem, ...]  # what is wrong with single files, though the others can be used
    unlabelled: Path | None  # another folder, whose images are among those of training
    annotations: tuple[Annotations, ...] = ()  # where labels come from these, and not from masks
    of_test: tuple[Annotations, ...] = ()  # those of test images, which do not decide what the classes are
    bare: tuple[str, ...] = ()  # names of images that they list, and on which nothing is annotated
    guessed: bool = False  # whether the folder of images was known by the names of its files alone
    inferred: Inferred | None = None  # how the classes of masks were, where no description gives them
    read_as: str = ""  # as in a listing

    def is_taken(self, folder: str) -> bool:
        """Whether a folder below the root has a part to play, is around one that has, or was written by oneway."""
        around_one = any(PurePosixPath(path).is_relative_to(folder) for path in self.description.folders)
        return around_one or is_output(self.root / folder)


def find(root: Path, unlabelled: Path | None = None) -> Found:
    """Find the training, validation and unlabelled images of a folder, with their masks.

    Args:
        root: The data folder; nothing outside is read.
        unlabelled: Another folder, all of whose images join the training set without labels.

    Raises:
        UserError: A folder is missing or without an image, or a path leads out of it.
    """
    _require_folder(root)
    description, parts, guessed = _described_parts(root)
    train, val, test, annotations, of_test, problems = parts
    _refuse_other_classes(annotations)
    bare = [item.name for item in (*train, *val) if any(item.image in found.empty for found in annotations)]
    if description.train and description.val and description.train.images == description.val.images:
        val = [item for item in val if item.labelled]  # the others may train
    tested = tuple(item for item in test if item.labelled)
    if not tested:
        description = description.model_copy(update={"test": None})
    for judging, purpose in ((val, "validate"), (test if tested else (), "test a model")):
        without = (item.image for item in judging if not item.labelled)
        problems += (Problem(image, f"left out: an image without labels cannot {purpose}.") for image in without)
    of_many = {found for one in (*annotations, *of_test) for found in one.files.values()}
    taken = _files((*val, *tested)) - of_many
    items = [item for item in train if item.image not in taken]
    for key, name in _folders_without_labels(root, description):
        taken |= _files(items)
        images = images_in(subfolder(root, name, key), root, problems)
        further = (Item(name_below(root, image), image) for image in images if image not in taken)
        items += [replace(item, background=shows_background(item, description)) for item in further]
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
        train=in_order(items),
        val=tuple(item for item in val if item.labelled),
        test=tested,
        problems=tuple(dict.fromkeys(problems)),
        unlabelled=unlabelled,
        annotations=annotations,
        of_test=of_test,
        bare=tuple(dict.fromkeys(bare)),
        guessed=guessed,
    )


def _described_parts(root: Path) -> tuple[Description, Parts, bool]:
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


def _folders_without_labels(root: Path, description: Description) -> Iterator[tuple[str, str]]:
    """Folders beside those of the parts whose images train too, each behind the key that names it."""
    drawn = [root / place for part in description.parts for place in (part.masks, part.objects) if place]
    for name in description.background:
        folder = subfolder(root, name, "background")
        if any(folder.is_relative_to(root / part.images) for part in description.parts):
            continue  # among the images of that part
        if any(place.is_relative_to(folder) or folder.is_relative_to(place) for place in drawn):
            raise UserError(
                f"{root / FILE}: `background` names {name}, where the masks are. Name the folders of images that need "
                "no mask, since they show background alone."
            )
        yield "background", name
    yield from (("unlabelled", name) for name in description.unlabelled)


def _files(items: Iterable[Item]) -> set[Path]:
    return {path for item in items for path in (item.image, item.mask) if path}


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
    return [Item(f"{prefix}/{name_below(folder, image)}", image) for image in images if image.resolve() not in used]
