"""Which mask, or which annotations, belong to which image: those of the same path, but for the suffix."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from oneway.common.errors import UserError
from oneway.data.dataset import Item
from oneway.data.decode.coco import Coco, read_coco
from oneway.data.folder.description import Part
from oneway.data.folder.layout import Problem, images_in, require_inside

MARKERS = ("_mask", "_masks", "_label", "_labels", "_seg", "_gt")
"""What the name of a mask may have in addition to that of its image, before the suffix."""

Index = dict[str, list[Path]]
"""Files by their path below a folder, without the suffix."""


@dataclass(frozen=True)
class Pairs:
    """The images of a part of a data set, with their labels where they have some."""

    items: tuple[Item, ...]
    """In order of name."""

    problems: tuple[Problem, ...]
    coco: Coco | None = None
    listed: dict[str, str] = field(default_factory=dict)
    """The file name under which COCO lists an item, by the name of the item."""


def pair(root: Path, part: Part, key: str) -> Pairs:
    """The images of a part of the folder `root`; a description calls it `key`."""
    problems: list[Problem] = []
    folder = subfolder(root, part.images, f"{key}.images")
    files = images_in(folder, root, problems)
    if part.coco is not None:
        return _outlined(root, folder, files, read_coco(require_inside(root / part.coco, root)), problems)
    if part.masks is None:
        images, masks = _beside(_index(files, folder))
    else:
        place = subfolder(root, part.masks, f"{key}.masks")
        found = images_in(place, root, problems)
        images = _index(sorted({*files} - {*found}), folder)  # where one folder is inside the other
        masks = _under_names_of(images, _index(found, place))
    items = [
        Item(name_below(root, image), image, masks[stem][0] if stem in masks else None)
        for stem, (image, *_) in images.items()
    ]
    problems += _mismatches(images, masks)
    return Pairs(tuple(sorted(items, key=lambda item: item.name)), tuple(problems))


def name_below(root: Path, path: Path) -> str:
    """A path below a folder, with forward slashes."""
    return path.relative_to(root).as_posix()


def subfolder(root: Path, name: str, key: str) -> Path:
    """The folder that `key` of a description names; a UserError if it is missing or outside."""
    folder = require_inside(root / name, root)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder, though `{key}` names it.")
    return folder


def _index(files: Iterable[Path], folder: Path) -> Index:
    index: Index = defaultdict(list)
    for path in files:
        index[path.relative_to(folder).with_suffix("").as_posix()].append(path)
    return index


def _unmarked(stem: str) -> str:
    return next((stem[: -len(marker)] for marker in MARKERS if stem.lower().endswith(marker)), stem)


def _under_names_of(images: Index, masks: Index) -> Index:
    """The masks, each under the name of its image where that is known."""
    renamed: Index = defaultdict(list)
    for stem, paths in masks.items():
        renamed[stem if stem in images or _unmarked(stem) not in images else _unmarked(stem)] += paths
    return renamed


def _beside(files: Index) -> tuple[Index, Index]:
    """Images and masks in one folder: `X.jpg` with `X.png`, or `X.png` with `X_mask.png` and the like."""
    images: Index = defaultdict(list)
    masks: Index = defaultdict(list)
    for stem, paths in files.items():
        pngs = [path for path in paths if path.suffix.lower() == ".png"]
        if _unmarked(stem) in files and _unmarked(stem) != stem:
            masks[_unmarked(stem)] += paths
        elif 0 < len(pngs) < len(paths):
            images[stem] += [path for path in paths if path not in pngs]
            masks[stem] += pngs
        else:
            images[stem] += paths
    return images, masks


def _beginning_of(stem: str, images: Index) -> str | None:
    """The longest name of an image that the name of a mask begins with, up to a sign such as `_`."""
    start = stem.rfind("/") + 1
    ends = (end for end in range(len(stem) - 1, start, -1) if not stem[end].isalnum())
    return next((stem[:end] for end in ends if stem[:end] in images), None)


def _mismatches(images: Index, masks: Index) -> Iterable[Problem]:
    for first, *others in images.values():
        for path in others:
            yield Problem(path, f"left out: but for the suffix it has the name of {first.name}. Rename or remove it.")
    names = {PurePosixPath(stem).name for stem in images}
    misplaced: dict[Path, int] = defaultdict(int)
    longer: Index = defaultdict(list)
    for stem, (first, *others) in masks.items():
        for path in others:
            yield Problem(path, f"left out: {first.name} is the mask of the same image. Remove one of them.")
        if stem not in images and {first.stem, _unmarked(first.stem)} & names:
            misplaced[first.parent] += 1
        elif stem not in images and (image := _beginning_of(stem, images)):
            longer[image].append(first)
        elif stem not in images:
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


def _outlined(root: Path, folder: Path, files: list[Path], coco: Coco, problems: list[Problem]) -> Pairs:
    """Images that COCO lists, by their path or else by a name that no other has; the others are without labels."""
    by_path = {name_below(start, path): path for start in (root, folder) for path in files}
    by_name: Index = defaultdict(list)
    for path in files:
        by_name[path.name].append(path)
    listed: dict[str, str] = {}
    for file_name in coco.images:
        wanted = PurePosixPath(file_name.replace("\\", "/"))
        same_name = by_name.get(wanted.name, [])
        found = by_path.get(wanted.as_posix()) or (same_name[0] if len(same_name) == 1 else None)
        if found is None:
            reason = "several have this name" if same_name else "it is not there"
            problems.append(Problem(coco.path, f"lists {file_name!r}, which is not found in {folder}: {reason}."))
        elif (name := name_below(root, found)) in listed:
            problems.append(Problem(coco.path, f"lists {found.name} as {listed[name]!r} and as {file_name!r}."))
        else:
            listed[name] = file_name
    names = {name_below(root, path): path for path in files}
    items = [Item(name, names[name], coco.path if name in listed else None) for name in sorted(names)]
    return Pairs(tuple(items), tuple(problems), coco, listed)
