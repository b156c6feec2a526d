"""Which files of a folder make a data set: its training, validation and unlabelled images, with their masks.

The mask of an image, and its entry in a file of annotations, have the same path as the image, but for the suffix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath

from oneway.common.errors import UserError, missing
from oneway.common.run_files import is_output
from oneway.data.cache.archives import unzip_command
from oneway.data.dataset import Item, in_order
from oneway.data.folder.another import name_another
from oneway.data.folder.description import FILE, Description
from oneway.data.folder.formats import Annotations
from oneway.data.folder.inferred import Inferred
from oneway.data.folder.names import MASK_FOLDERS
from oneway.data.folder.partners import described_parts
from oneway.data.folder.parts import name_below, shows_background, subfolder
from oneway.data.folder.walk import Problem, images_in, unsupported_images

ELSEWHERE = "unlabelled"  # what the names of images from another folder begin with
LABEL_FILES = frozenset((".yaml", ".yml", ".json", ".xml", ".txt", ".csv"))  # suffixes of what lies beside images


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
    description, parts, guessed = described_parts(root)
    _refuse_other_classes(parts.annotations)
    problems, test = parts.problems, _labelled(parts.test)
    if not test:
        description = description.model_copy(update={"test": None})
    shared = bool(description.train and description.val and description.train.images == description.val.images)
    val = _labelled(parts.val) if shared else parts.val  # without labels, those of a shared folder may train
    problems += _without_labels(val, "validate")
    problems += _without_labels(parts.test if test else (), "test a model")
    annotations = (*parts.annotations, *parts.of_test)
    taken = _files((*val, *test)) - {file for one in annotations for file in one.files.values()}  # of many images
    items = _training_images(root, description, parts.train, taken, problems)
    if unlabelled is not None:
        items += _from_elsewhere(unlabelled, items, taken | _files(items), problems)
    if not items:
        raise _no_image(root, bool(val), problems)
    bare = [item for item in (*parts.train, *parts.val) if any(item.image in one.empty for one in parts.annotations)]
    return Found(
        root=root,
        description=description,
        train=in_order(items),
        val=tuple(_labelled(val)),
        test=tuple(test),
        problems=tuple(dict.fromkeys(problems)),
        unlabelled=unlabelled,
        annotations=parts.annotations,
        of_test=parts.of_test,
        bare=tuple(dict.fromkeys(item.name for item in bare)),
        guessed=guessed,
    )


def _require_folder(folder: Path) -> None:
    if folder.suffix.lower() == ".zip" and folder.is_file():
        raise UserError(f"{folder}: an archive. Unpack it, and name the folder: {unzip_command(folder)}")
    if not folder.exists():
        raise missing(folder)
    if folder.suffix.lower() in LABEL_FILES and folder.is_file():
        beside = folder.parent.parent if folder.parent.name.lower() in MASK_FOLDERS else folder.parent
        raise UserError(f"{folder}: a file that may say what images show. Name the folder that holds both: {beside}")
    if not folder.is_dir():
        raise UserError(f"{folder}: not a folder. Folders and .zip files are read; unpack any other archive.")


def _refuse_other_classes(annotations: tuple[Annotations, ...]) -> None:
    for one, other in pairwise(annotations):
        if one.listed and one.names != other.names:
            files = [next(iter(found.files.values()), "nothing") for found in (other, one)]
            raise UserError(f"{files[0]}: its categories differ from those of {files[1]}. Give both the same.")


def _labelled(items: Sequence[Item]) -> list[Item]:
    return [item for item in items if item.labelled]


def _without_labels(items: Sequence[Item], purpose: str) -> Iterator[Problem]:
    without = (item.image for item in items if not item.labelled)
    return (Problem(image, f"left out: an image without labels cannot {purpose}.") for image in without)


def _training_images(
    root: Path, description: Description, train: list[Item], taken: set[Path], problems: list[Problem]
) -> list[Item]:
    """The images of the part that trains, and those of folders without labels: each once, and none that is taken."""
    items = [item for item in train if item.image not in taken]
    for key, name in _folders_without_labels(root, description):
        images = images_in(subfolder(root, name, key), root, problems)
        known = taken | _files(items)
        further = (Item(name_below(root, image), image) for image in images if image not in known)
        items = [*items, *(replace(item, background=shows_background(item, description)) for item in further)]
    return items


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
    further = [image for image in images if image.resolve() not in used]
    if not further:
        problems.append(Problem(folder, "adds no image: those in it train, validate or test a model already."))
    return [Item(f"{prefix}/{name_below(folder, image)}", image) for image in further]


def _no_image(root: Path, validates: bool, problems: Sequence[Problem]) -> UserError:
    """The error where no image trains."""
    if validates:
        return UserError(
            f"{root}: all images of `train` are those of `val` as well, so that none is left to train. Name others in "
            f"{FILE}, or leave out `val`: some of the labelled images are then held out to validate."
        )
    way_out = name_another(root) or f"Put images into {root / 'images'}, or say in {FILE} where they are."
    return UserError(f"{root}: no image found{unsupported_images(problems)}. {way_out}")
