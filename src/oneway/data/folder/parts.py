"""The images of the parts that train and that validate, each with its labels: a mask, or an entry of annotations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from oneway.common.errors import UserError
from oneway.common.threads import in_threads
from oneway.data.dataset import Item
from oneway.data.folder.description import DatasetPart, Description
from oneway.data.folder.formats import READERS, Annotations, AnnotationSource
from oneway.data.folder.names import IMAGES, MASKS
from oneway.data.folder.pairing import Stems, mismatches, pair_beside, pair_flat_masks, pair_masks, stems, stems_below
from oneway.data.folder.walk import Problem, images_in, require_inside
from oneway.data.name_lists import names_in_list
from oneway.data.pictures import is_marked


def name_below(root: Path, path: Path) -> str:
    """The name of an image: its path below a folder, with forward slashes."""
    return path.relative_to(root).as_posix()


def subfolder(root: Path, name: str, key: str) -> Path:
    """The folder that `key` of a description names; a UserError if it is missing or outside."""
    folder = require_inside(root / name, root)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder, though `{key}` names it.")
    return folder


def shows_background(item: Item, description: Description) -> bool:
    """Whether an image is in one of the folders whose images show background alone."""
    return any(PurePosixPath(item.name).is_relative_to(folder) for folder in description.background)


class Parts(NamedTuple):
    """The images of each part of a folder in order of name, with their labels."""

    train: list[Item]
    val: list[Item]
    test: list[Item]
    annotations: tuple[Annotations, ...]  # of training and validation images, which decide what the classes are
    of_test: tuple[Annotations, ...]
    problems: list[Problem]


def read_parts(root: Path, description: Description) -> Parts:
    """The images of each part of a folder, and their labels."""
    problems: list[Problem] = []
    parts = (read_part(root, description, key, problems) for key in ("train", "val", "test"))
    (train, taught), (val, validated), (test, tested) = parts
    known = tuple(found for found in (taught, validated) if found)
    return Parts(train, val, test, known, (tested,) if tested else (), problems)


def read_part(
    root: Path, description: Description, key: str, problems: list[Problem]
) -> tuple[list[Item], Annotations | None]:
    """The images of a part of the folder in order of name, which a description calls `key`, and their labels."""
    part: DatasetPart | None = getattr(description, key)
    if part is None:
        return [], None
    folder = subfolder(root, part.images, f"{key}.images")
    files = images_in(folder, root, problems)
    if part.annotations is None:
        place = None if part.masks is None else subfolder(root, part.masks, f"{key}.masks")
        items, annotations = _masked(root, folder, files, place, problems), None
    else:
        reader, labels = part.annotations
        crowds = description.crowds == "ignore"
        source = AnnotationSource(root, folder, files, require_inside(root / labels, root), problems, crowds)
        annotations = READERS[reader](source)
        items = _annotated(root, files, annotations, description.unannotated == "background")
    if description.background:
        items = [replace(item, background=not item.labelled and shows_background(item, description)) for item in items]
    if part.list is not None:
        items = _only_listed(require_inside(root / part.list, root), items, problems)
    return sorted(items, key=lambda item: item.name), annotations


def _annotated(root: Path, files: list[Path], annotations: Annotations, with_empty: bool) -> list[Item]:
    """Images with the files that annotate them; where nothing is annotated, only if that is asked for."""
    without = () if with_empty else annotations.empty
    labels = {image: file for image, file in annotations.files.items() if image not in without}
    further = {image: annotations.further.get(image, ()) for image in labels}
    images = [image for image in files if image not in annotations.pictures]
    return [Item(name_below(root, image), image, labels.get(image), further.get(image, ())) for image in images]


def _masked(root: Path, folder: Path, files: list[Path], place: Path | None, problems: list[Problem]) -> list[Item]:
    """Images with masks beside them, or in a folder of their own; a prediction serves where there is no other mask."""
    if place is None:
        images, masks = pair_beside(stems(files, folder))
        predicted = _predictions(masks)
        masks = {stem: sorted(paths, key=predicted.__contains__) for stem, paths in masks.items()}
    else:
        images, drawn = _images_and_masks(files, folder, images_in(place, root, problems, masks=True), place)
        predicted = _predictions(drawn)
        is_flat = folder != root and pair_masks(images, drawn).keys().isdisjoint(images)
        pair = pair_flat_masks if is_flat else pair_masks
        masks = pair(images, _only(drawn, lambda path: path not in predicted))
        for stem, paths in pair(images, _only(drawn, lambda path: path in predicted)).items():
            masks[stem] = [*masks.get(stem, ()), *paths]
    problems += mismatches(images, masks, predicted)
    first = {stem: paths[0] for stem, paths in masks.items()}
    return [
        Item(name_below(root, image), image, first.get(stem), predicted=first.get(stem) in predicted)
        for stem, (image, *_) in images.items()
    ]


def _images_and_masks(files: list[Path], folder: Path, masks: list[Path], place: Path) -> tuple[Stems, Stems]:
    """Images of a folder and masks of a place, by what they share; one may be inside the other, or be the other."""
    if place == folder:
        return stems_below(files, folder, IMAGES), stems_below(masks, folder, MASKS)
    return stems(sorted({*files} - {*masks}), folder), stems(masks, place)


def _only(files: Stems, wanted: Callable[[Path], bool]) -> Stems:
    kept = {stem: [path for path in paths if wanted(path)] for stem, paths in files.items()}
    return {stem: paths for stem, paths in kept.items() if paths}


def _predictions(masks: Stems) -> set[Path]:
    """The masks that `oneway predict` wrote, and no program has saved since."""
    pictures = [path for paths in masks.values() for path in paths if path.suffix.lower() == ".png"]
    made = in_threads(partial(is_marked, verb="predict"), pictures)
    return {path for path, is_made in zip(pictures, made, strict=True) if is_made}


def _only_listed(file: Path, items: list[Item], problems: list[Problem]) -> list[Item]:
    """The items, of which those that a file does not list are without labels."""
    named, unknown = names_in_list(file, [item.name for item in items])
    for entry in unknown:
        problems.append(Problem(file, f"lists {entry!r:.200}, and there is no such image."))
    without = [item.name for item in items if item.name in named and not item.labelled]
    if without:
        problems.append(Problem(file, f"lists {len(without)} images without labels, {without[0]} among them."))
    return [item if item.name in named else Item(item.name, item.image) for item in items]
