"""Which files of a folder make a data set: its training, validation and unlabelled images, with their masks.

The mask of an image, and its entry in a file of annotations, have the same path as the image, but for the suffix.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from oneway.common.errors import UserError, missing
from oneway.common.run_files import is_output
from oneway.common.words import listed
from oneway.data.cache.unpack import unzip_command
from oneway.data.dataset import Item
from oneway.data.folder.description import FILE, Description, Part, read_description
from oneway.data.folder.formats import READERS, Annotations, AnnotationSource
from oneway.data.folder.infer import Inferred
from oneway.data.folder.layout import BELOW, recognise
from oneway.data.folder.names import IMAGES, MASK_FOLDERS, MASKS, TRAIN, UNLABELLED, VAL
from oneway.data.folder.walk import Problem, entries_of, images_in, require_inside, stem_below, unsupported_images
from oneway.data.splits import names_in_list

ELSEWHERE = "unlabelled"  # what the names of images from another folder begin with
MARKERS = ("_mask", "_masks", "_label", "_labels", "_seg", "_gt")
"""What the name of a mask may have in addition to that of its image, before the suffix."""

MOST_BELOW = 32  # subfolders that are looked at

IMAGE_MARKERS = ("_image", "_img", "_photo", "_rgb", "_sat")
"""What the name of an image may have in addition to what it shares with that of its mask."""

Stems = dict[str, list[Path]]  # files by their path below a folder, without the suffix


@dataclass(frozen=True)
class Found:
    """The files of a data set, none of them decoded, and what is known about them."""

    root: Path
    description: Description
    """As read, and with the folders that were found; the classes are unknown until they are inferred."""

    train: tuple[Item, ...]  # those with labels first, each kind in order of name; nothing is held out yet
    val: tuple[Item, ...]  # all with labels; none where there is no validation set
    problems: tuple[Problem, ...]  # what is wrong with single files, though the others can be used
    unlabelled: Path | None  # another folder, whose images are among those of training
    annotations: tuple[Annotations, ...] = ()  # where labels come from these, and not from masks
    bare: tuple[str, ...] = ()  # names of images that they list, and on which nothing is annotated
    inferred: Inferred | None = None  # how the classes of masks were, where no description gives them


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
    (train, *taught), (val, *validated) = (_pair(root, description, key, problems) for key in ("train", "val"))
    annotations = tuple(found for found in (*taught, *validated) if found)
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
    )


def name_another(root: Path) -> str:
    """A sentence that names the data set which the user must have meant, one folder above or below; or nothing."""
    if above := _above(root):
        return f"It is part of {above}, which looks like a data set: name that folder."
    entries = [entry for entry in entries_of(root)[:MOST_BELOW] if entry.is_dir(follow_symlinks=False)]
    below = [path for path in (root / entry.name for entry in entries) if not is_output(path) and _labelled_parts(path)]
    if len(below) > 1:
        return f"{listed(below)} look like data sets: name one of them."
    return f"{below[0]} looks like a data set: name that folder." if below else ""


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


def _labelled_parts(root: Path) -> list[Part]:
    """What has labels in a folder: training and validation images, or nothing."""
    try:
        description = _with_folders(root)
    except UserError:
        return []
    parts = (description.train, description.val)
    return [part for part in parts if part is not None and (part.masks or part.annotations)]


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
        said = {key: getattr(given, key) for key in given.model_fields_set}
        unlabelled = tuple(dict.fromkeys((*layout.unlabelled, *given.unlabelled)))
        return Description(**said | {"train": layout.train, "val": layout.val, "unlabelled": unlabelled})
    except ValidationError as error:
        raise UserError(f"{file}: {error.errors()[0]['msg'].removeprefix('Value error, ')}.") from None


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
    images = images_in(folder, folder, problems)
    return [Item(f"{prefix}/{_name_below(folder, image)}", image) for image in images if image.resolve() not in used]


def _pair(
    root: Path, description: Description, key: str, problems: list[Problem]
) -> tuple[list[Item], Annotations | None]:
    """The images of a part of the folder in order of name, which a description calls `key`, and their labels."""
    part: Part | None = getattr(description, key)
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
    return [item if item.name in named else replace(item, mask=None, further=()) for item in items]


def _masked(root: Path, folder: Path, files: list[Path], part: Part, key: str, problems: list[Problem]) -> list[Item]:
    """Images with masks beside them, or in a folder of their own."""
    if part.masks is None:
        images, masks = _beside(_stems(files, folder))
    else:
        place = _subfolder(root, part.masks, f"{key}.masks")
        found = images_in(place, root, problems, masks=True)
        if place == folder:
            images, drawn = (_stems_below(paths, folder, names) for paths, names in ((files, IMAGES), (found, MASKS)))
        else:
            images = _stems(sorted({*files} - {*found}), folder)  # where one folder is inside the other
            drawn = _stems(found, place)
        masks = defaultdict(list)
        shared = _shared(images)
        for stem, paths in drawn.items():
            masks[_image_of(stem, images, shared)] += paths
    problems += _mismatches(images, masks)
    return [
        Item(_name_below(root, image), image, masks[stem][0] if stem in masks else None)
        for stem, (image, *_) in images.items()
    ]


def _stems(files: Iterable[Path], folder: Path) -> Stems:
    stems: Stems = defaultdict(list)
    for path in files:
        stems[stem_below(path, folder)].append(path)
    return stems


def _stems_below(files: Iterable[Path], folder: Path, names: Sequence[str]) -> Stems:
    """Files in subfolders of these names, without those: `a/images/1.jpg` and `a/masks/1.png` are both `a/1`."""
    stems: Stems = defaultdict(list)
    for path in files:
        if (found := BELOW.fullmatch(stem_below(path, folder))) and found[2].lower() in names:
            stems[f"{found[1] or '.'}/{found[3]}"].append(path)
    return stems


def unmarked(stem: str, markers: Sequence[str] = MARKERS) -> str:
    """The name of a mask without what it may have in addition to that of its image."""
    return next((stem[: -len(marker)] for marker in markers if stem.lower().endswith(marker)), stem)


def _image_of(stem: str, images: Collection[str], shared: Mapping[str, str]) -> str:
    """The name of the image to which a mask of this name belongs; its own where there is none.

    Args:
        stem: The name of the mask.
        images: Names of images.
        shared: Of those with something in addition, by what they share with their mask.
    """
    names = (stem, unmarked(stem), shared.get(stem), shared.get(unmarked(stem)))
    return next((name for name in names if name is not None and name in images), stem)


def _shared(stems: Iterable[str]) -> dict[str, str]:
    return {unmarked(stem, IMAGE_MARKERS): stem for stem in stems if unmarked(stem, IMAGE_MARKERS) != stem}


def _beside(files: Stems) -> tuple[Stems, Stems]:
    """Images and masks in one folder: `X.jpg` with `X.png`, or `X.png` with `X_mask.png` and the like."""
    images: Stems = defaultdict(list)
    masks: Stems = defaultdict(list)
    shared = _shared(files)
    for stem, paths in files.items():
        pngs = [path for path in paths if path.suffix.lower() == ".png"]
        if unmarked(stem) != stem and (image := _image_of(unmarked(stem), files, shared)) in files:
            masks[image] += paths
        elif 0 < len(pngs) < len(paths):
            images[stem] += [path for path in paths if path not in pngs]
            masks[stem] += pngs
        else:
            images[stem] += paths
    return images, masks


def _beginning_of(stem: str, images: Stems) -> str | None:
    """The longest name of an image that the name of a mask begins with, up to a sign such as `_`."""
    start = stem.rfind("/") + 1
    ends = (end for end in range(len(stem) - 1, start, -1) if not stem[end].isalnum())
    return next((stem[:end] for end in ends if stem[:end] in images), None)


def _mismatches(images: Stems, masks: Stems) -> Iterator[Problem]:
    for first, *others in images.values():
        for path in others:
            yield Problem(path, f"left out: but for the suffix it has the name of {first.name}. Rename or remove it.")
    names = {PurePosixPath(stem).name for stem in images}
    misplaced: dict[Path, int] = defaultdict(int)
    longer: Stems = defaultdict(list)
    for stem, (first, *others) in masks.items():
        for path in others:
            yield Problem(path, f"left out: {first.name} is the mask of the same image. Remove one of them.")
        if stem in images:
            continue
        if {first.stem, unmarked(first.stem)} & names:
            misplaced[first.parent] += 1
        elif image := _beginning_of(stem, images):
            longer[image].append(first)
        else:
            yield Problem(first, "no image has the name of this mask. Add the image, or remove the mask.")
    for stem, paths in longer.items():
        image, alone = images[stem][0].name, len(paths) == 1 and stem not in masks
        name = f"{PurePosixPath(stem).name}{paths[0].suffix}"
        way_out = f"rename it to {name}" if alone else f"paint all masks of this image into one, {name}"
        for path in paths:
            yield Problem(
                path, f"no image has the name of this mask. It seems to be that of the image {image}: {way_out}."
            )
    for folder, count in misplaced.items():
        yield Problem(
            folder,
            f"{count} masks here have the names of images elsewhere. Give both the same subfolders; where masks show "
            "one class each, paint those of an image into one, with a number for each class.",
        )
