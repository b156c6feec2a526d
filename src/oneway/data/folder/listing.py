"""The listing of a folder: its files, its classes, and a hold-out where it has no validation set."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from oneway.common.terms import SplitName
from oneway.data.dataset import NO_RUN, Bytes, Item, Known, Listing
from oneway.data.folder.described import describe
from oneway.data.folder.doubts import doubts
from oneway.data.folder.files import Found
from oneway.data.folder.groups import group_of
from oneway.data.folder.hold_out import hold_out, may_validate, with_all_classes
from oneway.data.folder.labels import labels_of
from oneway.data.folder.reduction import Reduction, with_reduction
from oneway.data.folder.refusals import refuse_too_few, refuse_unnamed
from oneway.data.folder.remarks import remarks_on
from oneway.data.image_style import MOST_BITS, ImageStyle


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
    labels = labels_of(found, known)
    drawn_by = (holdout, seed, description.groups)
    held_out, chosen_by = _held_out(found, labelled, drawn_by, all_validate, known, labels.read)
    names = {item.name for item in held_out}
    listing = Listing(
        root=found.root,
        classes=labels.classes,
        colours=labels.colours,
        train=tuple(item for item in found.train if item.name not in names),
        val=found.val or held_out,
        test=found.test,
        read_labels=labels.read,
        warnings=tuple(doubts(found, held_out, labels.classes)),
        remarks=tuple(remarks_on(found, held_out, len(labelled), holdout)),
        label_coding=labels.coding,
        selection=_selection(found, chosen_by),
        unlabelled=found.unlabelled,
        image_style=ImageStyle(description.bands, description.bits or MOST_BITS),
        masks=labels.masks,
        bare=frozenset(found.bare),
        group_of=partial(group_of, groups=description.groups) if description.groups else None,
        read_as=found.read_as,
    )
    return with_reduction(listing, reduction)


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
