"""How the labels of a folder are read: from masks or from annotations, by the classes of a run where it has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.common.words import listed
from oneway.data.check.survey import ALIKE_SHAPES
from oneway.data.dataset import Bytes, Colour, Item, Known
from oneway.data.decode.images import image_size
from oneway.data.decode.masks import Coding, read_mask
from oneway.data.decode.plausible import MOST_PIXELS
from oneway.data.decode.regions import BACKGROUND, is_background, paint_over, spelled, undrawn_class
from oneway.data.folder.classes import default_colours
from oneway.data.folder.description import FILE
from oneway.data.folder.files import Found
from oneway.data.folder.formats import Annotations
from oneway.data.folder.inferred import SHOWN
from oneway.data.folder.run_classes import by_names
from oneway.data.mask_style import MaskStyle, style_of


@dataclass(frozen=True)
class Labels:
    """The classes of labels, and how these are read; see `Listing`."""

    classes: tuple[str, ...]
    colours: tuple[Colour, ...]
    read: Callable[[Item], Bytes]
    coding: str
    """Identifies how they are read; what is not used is left out, so that caches stay valid."""

    masks: MaskStyle | None = None


def labels_of(found: Found, known: Known) -> Labels:
    """The labels of a folder that has been described."""
    labels = _of_annotations(found, known) if found.annotations else _of_masks(found, known)
    if not found.description.background:
        return labels
    return replace(labels, read=partial(_read_background, labels.read, _background_of(found.root, labels.classes)))


def _of_masks(found: Found, known: Known) -> Labels:
    description, masks = found.description, None
    if description.classes and (of_run := by_names(description.classes, known)):
        description = description.model_copy(update={"classes": of_run, "colours": default_colours(of_run.names)})
    coding = description.coding()
    if description.classes and {*description.classes.table.values()} == {*range(len(description.names))}:
        masks = style_of((item.mask for item in found.train if item.mask), description.classes.table)
    lenient = {key: getattr(description, key) for key in ("resize_masks", "colour_tolerance")}
    return Labels(
        classes=description.names,
        colours=description.palette,
        read=partial(_read_mask, coding, description.resize_masks == "nearest"),
        coding=repr(coding) + "".join(f", {key} {value}" for key, value in lenient.items() if value),
        masks=masks,
    )


def _read_mask(coding: Coding, resize: bool, item: Item) -> Bytes:
    if item.mask is None:
        raise UserError(f"{item.image}: no mask belongs to it.")
    labels = read_mask(item.mask, coding)
    return _resized(labels, image_size(item.image)) if resize else labels


def _of_annotations(found: Found, known: Known) -> Labels:
    classes, description = _annotated_classes(found, known), found.description
    every = (*found.annotations, *found.of_test)
    coding = f"annotations, crowds {description.crowds}, unannotated {description.unannotated}"
    # Formats that are read otherwise than they once were say so: what older caches hold of them is not used.
    kinds = {part.annotations[0] for part in description.parts if part.annotations}
    coding += f", merge {description.merged_into}" if description.merge else ""
    coding += ", objects by colour" if "objects" in kinds else ""
    coding += f", resize_masks {description.resize_masks}" if description.resize_masks else ""
    coding += ", turned shapes" if kinds & {"cvat", "label_studio"} else ""
    return Labels(
        classes=classes,
        colours=default_colours(classes),
        read=partial(_read_annotations, every, classes, description.resize_masks == "nearest"),
        coding=coding + "".join(one.coding for one in found.annotations),
    )


def _annotated_classes(found: Found, known: Known) -> tuple[str, ...]:
    """All classes, where labels come from annotations: as described, or else the background first.

    Those of a run, where these are some of them, and what no region covers is the same by both.
    """
    names = dict.fromkeys(name for one in found.annotations for name in one.names)
    if given := found.description.names:
        others = [name for name in names if spelled(name, given) is None and not is_background(name)]
        drawn_on = _first_images(found.annotations) if others else {}
        if lacking := [name for name in others if name in drawn_on]:  # others are listed, and were never used
            shown = listed((repr(name) for name in lacking), SHOWN)
            is_drawn, it = ("is drawn", "it") if len(lacking) == 1 else ("are drawn", "them")
            first = drawn_on[lacking[0]].relative_to(found.root).as_posix()
            raise UserError(
                f"{found.root / FILE}: `classes` lacks {shown}, which {is_drawn} ({first} is the first). Add {it}, or "
                "correct the labels."
            )
        same_undrawn = (undrawn_class(given) == IGNORE) == (undrawn_class(known.classes) == IGNORE)
        return known.classes if {*given} <= {*known.classes} and same_undrawn else given
    every = names if all(one.listed for one in found.annotations) else sorted(names)
    drawn = [name for name in every if not is_background(name)]
    return known.classes if {*drawn} <= {*known.classes} and known.classes else (BACKGROUND, *drawn)


def _first_images(annotations: Sequence[Annotations]) -> dict[str, Path]:
    """By the name of each class that is drawn: the first image on which it is."""
    first: dict[str, Path] = {}
    for one in annotations:
        for image in one.files:
            for region in one.regions(image).regions:
                if region.name is not None:
                    first.setdefault(region.name, image)
    return first


def _read_annotations(annotations: Sequence[Annotations], classes: Sequence[str], resize: bool, item: Item) -> Bytes:
    for found in annotations:
        if item.image in found.files:
            labels = paint_over(item.image, found.regions(item.image), classes, any_size=resize)
            return _resized(labels, image_size(item.image)) if resize and labels.size <= MOST_PIXELS else labels
    raise UserError(f"{item.image}: no annotations list it.")


def _resized(labels: Bytes, size: tuple[int, int]) -> Bytes:
    """Labels at another size, each the one nearest to its centre; as they are where the two have not the same shape."""
    if labels.shape == size or abs(labels.shape[0] * size[1] / (labels.shape[1] * size[0]) - 1) > ALIKE_SHAPES:
        return labels
    rows, columns = ((2 * np.arange(new) + 1) * old // (2 * new) for old, new in zip(labels.shape, size, strict=True))
    return labels[rows[:, None], columns]


def _background_of(root: Path, classes: Sequence[str]) -> int:
    """The class of images that show background alone."""
    label = next((index for index, name in enumerate(classes) if is_background(name)), None)
    if label is None:
        raise UserError(
            f"{root / FILE}: `background` names folders whose images show background alone, and no class is called "
            f"background, of {listed(map(repr, classes), SHOWN)}. Give it that name in `classes`."
        )
    return label


def _read_background(read_labels: Callable[[Item], Bytes], label: int, item: Item) -> Bytes:
    return np.full(image_size(item.image), label, dtype=np.uint8) if item.background else read_labels(item)
