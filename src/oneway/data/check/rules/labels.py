"""Rules about what masks hold: no label, predictions, classes that are absent, and two codings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from oneway.common.terms import IGNORE
from oneway.common.words import listed
from oneway.data.check.rules.interface import WHOLE_SET, Finding, Surveys, held_out, labels_file, pixels_by_label
from oneway.data.dataset import Listing
from oneway.data.decode.masks import MASK_SUFFIXES, about_alpha, alpha_varies
from oneway.data.pictures import is_marked

LOOKED_AT = 16  # masks of a single class, for alpha that holds more
SHOWN = 8  # classes that a message names


def ignored_masks(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Masks in which no pixel has a class."""
    for item in listing.items:
        labels = surveys[item.name].labels or {}
        if item.mask and labels.keys() == {IGNORE}:
            message = f"all of its {labels[IGNORE]:,} pixels are ignored"
            yield Finding("warning", "Masks without a labelled pixel", labels_file(item, listing), message)


def predicted_masks(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Masks that `oneway predict` wrote, and no program has saved since: they may train, but no score is of them."""
    masks = [item for item in listing.items if item.mask and item.mask.suffix.lower() == ".png"]
    made = [item for item in masks if item.mask and is_marked(item.mask, "predict")]
    judging = {item.name for _, items in held_out(listing) for item in items}
    for item in made:
        if item.name in judging:
            message = "a score by it would compare two models. Correct it and save it anew, or let it train"
            kind = "Masks that are predictions cannot validate"
            yield Finding("error", kind, labels_file(item, listing), message)
    if teaching := [item for item in made if item.name not in judging]:
        message = (
            f"{len(teaching)} of {len(masks)} masks are as `oneway predict` wrote them "
            f"({labels_file(teaching[0], listing)} is the first): a model that learns from them learns its own "
            "mistakes. They train, and are not held out to validate"
        )
        yield Finding("warning", "Masks that are predictions", WHOLE_SET, message)


def absent_classes(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Classes that do not occur, and two mistakes that this reveals: 255 meant as a class, and counting from 1."""
    splits = ("training", listing.train), *held_out(listing)
    counts = {split: pixels_by_label(items, surveys) for split, items in splits}
    every = set[int]().union(*counts.values())
    present = every - {IGNORE}
    if len(present) < 2:
        yield from _single_class(listing, present, IGNORE in every)
        return
    numbered = any(item.mask and item.mask.suffix.lower() in MASK_SUFFIXES for item in listing.items)
    if 0 not in present and numbered:  # of annotations, 0 is what no region covers
        zero = _named(0, listing).removeprefix("class ")
        message = f"classes from {min(present)} to {max(present)} occur, and never {zero}"
        yield Finding("warning", "Labels that may be counted from 1", WHOLE_SET, message)
    for split, count in counts.items():
        expected = range(0 not in present, len(listing.classes))
        absent = [_named(label, listing) for label in expected if label not in count]
        if absent and count.keys() - {IGNORE}:
            message = f"no {split} mask has a pixel of {listed(absent, SHOWN, 'or')}"
            yield Finding("warning", f"Classes that never occur in {split}", WHOLE_SET, message)


def _single_class(listing: Listing, present: set[int], some_ignored: bool) -> Iterator[Finding]:
    """The error of a data set whose labelled pixels are all of one class; of none, another rule says that."""
    for only in present:
        message = f"every labelled pixel is of {_named(only, listing)}"
        if some_ignored:
            message += "; what else is there is ignored, as 255 is unless `classes` in dataset.yaml lists it"
        masks = (item.mask for item in listing.items if item.mask)
        if (first := next(filter(alpha_varies, islice(masks, LOOKED_AT)), None)) is not None:
            message += f"; {about_alpha(first)}"
        yield Finding("error", "A single class: there is nothing to tell apart", WHOLE_SET, message)


def _named(label: int, listing: Listing) -> str:
    """A class by its number and its name, where that says more than a number."""
    name = listing.classes[label]
    return name if re.fullmatch(r"class \d+", name) else f"class {label} ({name})"


def two_codings(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Masks of 0 and 255 beside masks of 0 and 1, where 255 is ignored: what the former show would be lost."""
    masks = [item for item in listing.items if item.mask and item.mask.suffix.lower() in MASK_SUFFIXES]
    held = {item: (surveys[item.name].labels or {}).keys() for item in masks}
    ones, white = ([item for item in masks if label in held[item]] for label in (1, IGNORE))
    if len(listing.classes) == 2 and ones and white and not any(IGNORE in held[item] for item in ones):
        example = labels_file(ones[0], listing)
        for item in white:
            message = (
                f"holds 0 and 255, which is ignored, and no mask with a 1 holds 255 ({example} does not). Save all "
                "with the same two numbers; if the 255 are to be ignored, give them a third, and list it in `ignore`"
            )
            yield Finding("error", "Masks of 0 and 255 among masks of 0 and 1", labels_file(item, listing), message)
