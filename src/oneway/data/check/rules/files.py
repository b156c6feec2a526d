"""Rules about what is there: files that cannot be read, and labels that are missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from oneway.common.terms import IGNORE
from oneway.data.check.rules.interface import WHOLE_SET, Finding, Surveys, held_out, image_file, labels_file
from oneway.data.check.survey import Fault
from oneway.data.dataset import Listing

FORGOTTEN = 0.1  # up to this share of a folder's images, those without a mask were probably forgotten
UNREADABLE = 0.1  # up to this share of the unlabelled images, those that cannot be read are left out by default

DECODING_ERRORS: dict[Fault, str] = {
    "image": "Images that cannot be read",
    "mask": "Masks that cannot be used",
    "labels": "Masks that cannot be used",
    "size": "Masks that do not fit their image",
}


def decoding_errors(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Images and masks that cannot be decoded, mean nothing, or do not fit each other, among those surveyed.

    Of unlabelled images, a few are only left out.
    """
    tolerated = unreadable_without_labels(listing, surveys)
    few = len(tolerated) <= UNREADABLE * sum(not item.labelled for item in listing.train)
    for item in listing.items:
        survey = surveys.get(item.name)
        if survey and survey.problem and survey.part and item.name in tolerated and few:
            message = survey.problem.removeprefix(f"{item.image}: ")
            kind = "Unlabelled images that cannot be read, and are left out"
            yield Finding("warning", kind, image_file(item, listing), message)
        elif survey and survey.problem and survey.part:
            file = image_file(item, listing) if survey.part == "image" else labels_file(item, listing)
            # A finding names its file already, and another as it names its own.
            message = survey.problem.removeprefix(f"{item.image}: ").removeprefix(f"{item.mask}: ")
            message = message.replace(str(item.image), image_file(item, listing))
            yield Finding("error", DECODING_ERRORS[survey.part], file, message)


def unreadable_without_labels(listing: Listing, surveys: Surveys) -> set[str]:
    """The names of training images without labels that cannot be read."""
    bare = {item.name for item in listing.train if not item.labelled}
    return {name for name, survey in surveys.items() if survey.part == "image" and name in bare}


def too_few_labels(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """No labelled image for training or validation, or a single one."""
    for split, items in (("training", listing.train), ("validation", listing.val)):
        if items is listing.val and not items:
            continue  # as the user wants it
        usable = [item for item in items if (surveys[item.name].labels or {}).keys() - {IGNORE}]
        if any(surveys[item.name].problem for item in items):
            continue  # `decoding_errors` says so, and that is to be corrected first
        if not usable:
            yield Finding("error", "No labels", WHOLE_SET, f"no {split} image has a labelled pixel")
        elif len(usable) == 1:
            yield Finding("warning", f"A single labelled {split} image", usable[0].name, "add a handful at the least")


def absent_masks(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Validation and test images without a mask, and a few training images without one among many that have one."""
    for split, items in held_out(listing):
        for item in items:
            if not item.labelled:
                message = "add its mask, or move it to the training images"
                yield Finding("error", f"{split.capitalize()} images without a mask", item.name, message)
    folders = defaultdict(list)
    for item in listing.train:
        folders[item.image.parent].append(item)
    for beside in folders.values():
        bare = [item for item in beside if not item.labelled and item.name not in listing.bare]
        if len(bare) <= FORGOTTEN * len(beside):
            count = sum(item.labelled for item in beside)
            message = f"no mask, but {count} of the {len(beside)} images in its folder have one"
            for item in bare:
                yield Finding("warning", "Masks that may be missing: these images train unlabelled", item.name, message)


def doubtful_files(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """What was found when files were listed."""
    for kind, message in listing.warnings:
        yield Finding("warning", kind, WHOLE_SET, message)
