"""The listing of a folder: its files, its classes, and a hold-out where it has no validation set."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from oneway.common.errors import UserError, unknown
from oneway.common.terms import IGNORE, SplitName
from oneway.common.words import listed
from oneway.data.check.survey import ALIKE_SHAPES
from oneway.data.dataset import NO_RUN, Bytes, Colour, Item, Known, Listing
from oneway.data.decode.images import image_size
from oneway.data.decode.masks import Coding, read_mask
from oneway.data.decode.plausible import MOST_PIXELS
from oneway.data.decode.regions import BACKGROUND, is_background, paint_over, spelled, undrawn_class
from oneway.data.folder.another import name_another
from oneway.data.folder.class_table import find_legend, find_table
from oneway.data.folder.classes import default_colours, merge
from oneway.data.folder.description import FILE, Description
from oneway.data.folder.doubts import doubts
from oneway.data.folder.files import Found, find
from oneway.data.folder.formats import Annotations
from oneway.data.folder.formats.interface import renamed
from oneway.data.folder.hold_out import hold_out, may_validate, with_all_classes
from oneway.data.folder.infer import infer
from oneway.data.folder.inferred import SHOWN
from oneway.data.folder.reduction import Reduction, with_reduction
from oneway.data.folder.refusals import refuse_too_few, refuse_unnamed
from oneway.data.folder.remarks import remarks_on
from oneway.data.folder.run_classes import by_names, by_values, how_read
from oneway.data.image_style import MOST_BITS, ImageStyle
from oneway.data.mask_style import style_of


def describe(root: Path, unlabelled: Path | None = None, known: Known = NO_RUN) -> Found:
    """Find the files of a folder, and infer the classes from all masks where no description gives them.

    Args:
        root: The data folder; nothing outside is read.
        unlabelled: Another folder, all of whose images join the training set without labels.
        known: What a run has decided.

    Raises:
        UserError: A folder is missing or without an image, or its masks hold no classes; says why, and the way out.
    """
    found = find(root, unlabelled)
    given = found.description
    masks = [item.mask for item in (*found.train, *found.val) if item.mask]
    if not masks and (another := name_another(root)):
        raise UserError(f"{root}: none of its images has labels. {another}")
    if given.classes is not None or found.annotations or not masks:
        return _with_merged_classes(found, known)
    table = find_table(found.root, dict.fromkeys((".", *(part.images for part in given.parts))))
    inferred, read_as = infer(masks, given.ignore, table), ""
    if table is None and known.classes and (of_run := by_values(inferred.classes, known)):
        read_as = how_read(inferred.classes, of_run)
        alike = of_run.names == inferred.classes.names  # else some do not occur here, or have had other names
        inferred = replace(inferred, classes=of_run, colours=inferred.colours if alike else None, named=True)
    if not inferred.named and (legend := find_legend(root, inferred.classes.table)):
        inferred = replace(inferred, classes=legend.classes, legend=legend.path.name)
    classes = inferred.classes
    ignore = None if classes.coloured or IGNORE in classes.table else (IGNORE,)
    changes = {
        "classes": classes,
        "colours": inferred.colours if given.colours is None else given.colours,
        "ignore": given.ignore if given.ignore is not None else inferred.ignore or ignore,
    }
    found = replace(found, description=given.model_copy(update=changes), inferred=inferred, read_as=read_as)
    return _with_merged_classes(found, known)


def _with_merged_classes(found: Found, known: Known) -> Found:
    """The same, with one class for those that the description merges."""
    description, into = found.description, found.description.merged_into
    if not into or (found.inferred and not found.inferred.named):  # the latter are refused
        return found
    names = list(dict.fromkeys((*description.names, *(name for one in found.annotations for name in one.names))))
    if not known.classes and (lacking := [name for name in into if name not in names]):  # a run may have merged them
        raise UserError(f"{found.root / FILE}: merge: {unknown('class', lacking[0], names)}")
    changes: dict[str, object] = {}
    if classes := description.classes:
        shown: dict[str, Colour] = {}
        for name, colour in zip(description.names, description.palette, strict=True):
            shown[into.get(name, name)] = colour if name not in into else shown.get(into[name], colour)
        changes = {"classes": merge(classes, into), "colours": tuple(shown.values())}
    annotations = tuple(renamed(one, into) for one in found.annotations)
    return replace(found, description=description.model_copy(update=changes), annotations=annotations)


def list_folder(
    root: Path,
    unlabelled: Path | None,
    holdout: float,
    seed: int,
    all_validate: bool = False,
    reduction: Reduction = "auto",
    known: Known = NO_RUN,
) -> Listing:
    """The data set in a folder, ready to decode; see `describe` and `list_described`."""
    return list_described(describe(root, unlabelled, known), holdout, seed, all_validate, reduction, known)


def list_described(
    found: Found,
    holdout: float,
    seed: int,
    all_validate: bool = False,
    reduction: Reduction = "auto",
    known: Known = NO_RUN,
) -> Listing:
    """The data set in a folder that has been described.

    Args:
        found: What `describe` has found.
        holdout: Share of the labelled images that validate, where there is no validation set; 0 for none.
        seed: Decides which ones.
        all_validate: Where there is no validation set, all labelled images validate, but for those that a model drew.
        reduction: See `with_reduction`.
        known: What a run has decided: those that were held out for it and still have labels are held out again.

    Raises:
        UserError: The files make no data set; says why, and the way out.
    """
    description = found.description
    labelled = [item for item in found.train if item.labelled]
    refuse_too_few(found, labelled, holdout)
    refuse_unnamed(found)
    if description.classes and not found.annotations and (of_run := by_names(description.classes, known)):
        description = description.model_copy(update={"classes": of_run, "colours": default_colours(of_run.names)})
    classes, colours, masks = description.names, description.palette, None
    if found.annotations:
        classes = _annotated_classes(found, known)
        colours = default_colours(classes)
        every = (*found.annotations, *found.of_test)
        read_labels = partial(_read_annotations, every, classes, description.resize_masks == "nearest")
    else:
        read_labels = partial(_read_mask, description.coding(), description.resize_masks == "nearest")
        if description.classes and {*description.classes.table.values()} == {*range(len(classes))}:
            masks = style_of((item.mask for item in labelled if item.mask), description.classes.table)
    if description.background:
        read_labels = partial(_read_background, read_labels, _background_of(found.root, classes))
    drawn_by = (holdout, seed, description.groups)
    held_out, chosen_by = _held_out(found, labelled, drawn_by, all_validate, known, read_labels)
    names = {item.name for item in held_out}
    listing = Listing(
        root=found.root,
        classes=classes,
        colours=colours,
        train=tuple(item for item in found.train if item.name not in names),
        val=found.val or held_out,
        test=found.test,
        read_labels=read_labels,
        warnings=tuple(doubts(found, held_out, classes)),
        remarks=tuple(remarks_on(found, held_out, len(labelled), holdout)),
        label_coding=_label_coding(found, description),
        selection=_selection(found, chosen_by),
        unlabelled=found.unlabelled,
        image_style=ImageStyle(description.bands, description.bits or MOST_BITS),
        masks=masks,
        read_as=found.read_as,
    )
    return with_reduction(listing, reduction)


def _label_coding(found: Found, description: Description) -> str:
    """Identifies how labels are read; what is not used is left out, so that caches stay valid."""
    if not found.annotations:
        lenient = {key: getattr(description, key) for key in ("resize_masks", "colour_tolerance")}
        return repr(description.coding()) + "".join(f", {key} {value}" for key, value in lenient.items() if value)
    coding = f"annotations, crowds {description.crowds}, unannotated {description.unannotated}"
    # Formats that are read otherwise than they once were say so: what older caches hold of them is not used.
    kinds = {part.annotations[0] for part in description.parts if part.annotations}
    coding += f", merge {description.merged_into}" if description.merge else ""
    coding += ", objects by colour" if "objects" in kinds else ""
    coding += f", resize_masks {description.resize_masks}" if description.resize_masks else ""
    coding += ", turned shapes" if kinds & {"cvat", "label_studio"} else ""
    return coding + "".join(one.coding for one in found.annotations)


def _held_out(
    found: Found,
    labelled: Sequence[Item],
    drawn_by: tuple[float, int, str | None],
    all_validate: bool,
    known: Known,
    read_labels: Callable[[Item], Bytes],
) -> tuple[tuple[Item, ...], Sequence[object] | None]:
    """The labelled images that validate for want of a validation set, and what chose them; None where there is one."""
    if found.val:
        return (), None
    judging = may_validate(labelled)
    if all_validate:
        return tuple(judging), ("all",)
    plain = hold_out(judging, *drawn_by)
    before = tuple(item for item in labelled if item.name in known.validating)
    chosen = before or with_all_classes(plain, judging, *drawn_by, read_labels)
    if chosen != plain or len(chosen) < len(known.validating):
        return chosen, [item.name for item in chosen]
    return chosen, drawn_by if drawn_by[2] else drawn_by[:2]  # as caches have it


def _selection(found: Found, held_out: Sequence[object] | None) -> dict[SplitName, Sequence[object]]:
    """What decided which files are in a split; `held_out` is how validation images were chosen, if they were."""
    description = found.description
    parts = (description.train, description.val, description.test)
    train, val, test = (part and part.identity for part in parts)
    background = (description.background,) if description.background else ()  # so that caches stay valid
    elsewhere = found.unlabelled and os.path.abspath(found.unlabelled)
    return {
        "train": (train, description.unlabelled, elsewhere, held_out, *background),
        "val": (train if held_out else val, held_out, *background),
        "test": (test, *background),
    }


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


def _read_mask(coding: Coding, resize: bool, item: Item) -> Bytes:
    if item.mask is None:
        raise UserError(f"{item.image}: no mask belongs to it.")
    labels = read_mask(item.mask, coding)
    return resized(labels, image_size(item.image)) if resize else labels


def resized(labels: Bytes, size: tuple[int, int]) -> Bytes:
    """Labels at another size, each the one nearest to its centre; as they are where the two have not the same shape."""
    if labels.shape == size or abs(labels.shape[0] * size[1] / (labels.shape[1] * size[0]) - 1) > ALIKE_SHAPES:
        return labels
    rows, columns = ((2 * np.arange(new) + 1) * old // (2 * new) for old, new in zip(labels.shape, size, strict=True))
    return labels[rows[:, None], columns]


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
            return resized(labels, image_size(item.image)) if resize and labels.size <= MOST_PIXELS else labels
    raise UserError(f"{item.image}: no annotations list it.")
