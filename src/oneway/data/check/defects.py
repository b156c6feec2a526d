"""What can be wrong with a data set, rule by rule; a rule reads a listing and the surveys of all its items."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from oneway.common.terms import IGNORE
from oneway.common.words import counted, listed
from oneway.data.check.duplicates import ALIKE, nearest, nearest_other
from oneway.data.check.survey import UPRIGHT, Fault, Survey
from oneway.data.dataset import Item, Listing
from oneway.data.decode.images import DARK, FEW_LEVELS, SIDEWAYS, bits_in_use
from oneway.data.decode.masks import MASK_SUFFIXES, about_alpha, alpha_varies
from oneway.data.image_style import MOST_BITS
from oneway.data.pictures import is_marked

TINY = 32  # height or width below which a network with stride 32 has less than one cell
FORGOTTEN = 0.1  # up to this share of a folder's images, those without a mask were probably forgotten
UNREADABLE = 0.1  # up to this share of the unlabelled images, those that cannot be read are left out by default
REPEATED = 0.1  # share of a split's images from which repeated scenes are reported
LOOKED_AT = 16  # masks of a single class, for alpha that holds more
SHOWN = 8  # classes that a message names
WHOLE_SET = "."  # the file of a finding that is about no single file

Surveys = Mapping[str, Survey]


@dataclass(frozen=True)
class Finding:
    """One thing that makes training wrong (an error), or that is suspicious (a warning)."""

    level: Literal["error", "warning"]
    kind: str  # the heading that it shares with others of its kind
    file: str  # its path below the data folder where it lies there, or WHOLE_SET
    message: str  # the value, and what to do about it where the kind does not say


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
        bare = [item for item in beside if not item.labelled]
        if len(bare) <= FORGOTTEN * len(beside):
            message = f"no mask, but {len(beside) - len(bare)} of the {len(beside)} images in its folder have one"
            for item in bare:
                yield Finding("warning", "Masks that may be missing: these images train unlabelled", item.name, message)


def doubtful_files(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """What was found when files were listed."""
    for kind, message in listing.warnings:
        yield Finding("warning", kind, WHOLE_SET, message)


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
        for only in present:
            message = f"every labelled pixel is of {_named(only, listing)}"
            if IGNORE in every:
                message += "; what else is there is ignored, as 255 is unless `classes` in dataset.yaml lists it"
            masks = (item.mask for item in listing.items if item.mask)
            if (first := next(filter(alpha_varies, islice(masks, LOOKED_AT)), None)) is not None:
                message += f"; {about_alpha(first)}"
            yield Finding("error", "A single class: there is nothing to tell apart", WHOLE_SET, message)
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


def odd_images(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Images too small to learn from, of one colour, nearly black, of several pages, or seen otherwise than stored."""
    for item in listing.items:
        survey, file = surveys[item.name], image_file(item, listing)
        height, width = survey.size
        if not survey.fingerprint:
            continue
        if min(height, width) < TINY:
            yield Finding("warning", f"Images below {TINY} pixels", file, f"{width}×{height} pixels")
        if survey.pages > 1:
            message = f"{survey.pages} pages; save the others as files of their own"
            yield Finding("warning", "Files of which only the first page is used", file, message)
        few_bits = survey.brightest is not None and survey.brightest < DARK  # the next rule says what to do then
        if len(set(survey.fingerprint)) == 1 and not few_bits:
            yield Finding("warning", "Blank images", file, f"grey value {survey.fingerprint[0]} all over")
        elif max(survey.fingerprint) < DARK and not few_bits:
            message = f"no region is brighter than {max(survey.fingerprint)} of 255"
            yield Finding("warning", "Nearly black images", file, message)
        # Where an image lay on its side, an oblong mask that fits is upright too; elsewhere one cannot tell. Regions
        # were drawn on the image as tools show it, which is upright.
        drawn_apart = item.mask is not None and item.mask.suffix.lower() in MASK_SUFFIXES
        if drawn_apart and survey.orientation != UPRIGHT and (survey.orientation not in SIDEWAYS or height == width):
            message = f"EXIF orientation {survey.orientation} is undone in the image; the mask is read as it is stored"
            kind = "Images that may be turned against their mask: see the contact sheet of `oneway check`"
            yield Finding("warning", kind, file, message)


def further_bands(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Images with a band that is not used."""
    found = [item for item in listing.items if surveys[item.name].further_band]
    if found and listing.image_style.bands is None:
        infrared = ". If the fourth is infra-red, and not alpha, `bands: [4, 3, 2]` in dataset.yaml takes it for red"
        may_be = any(item.image.suffix.lower() in (".tif", ".tiff") for item in found)
        message = (
            f"{len(found)} of {len(listing.items)} images have a band besides their colours "
            f"({image_file(found[0], listing)} is the first): the first three are used, as red, green and blue"
            f"{infrared if may_be else ', and alpha is not'}"
        )
        yield Finding("warning", "Bands that are not used", WHOLE_SET, message)


def unused_bits(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Images in 16 bits that use only the lower ones, as those of many cameras do, or as reflectance is scaled."""
    seen = ((item, surveys[item.name].brightest) for item in listing.items)
    brightest = {item: value for item, value in seen if value is not None}
    dark = {item: value for item, value in brightest.items() if value < DARK}
    most = max(brightest.values(), default=0)
    few = DARK <= most < FEW_LEVELS and listing.image_style.bits == MOST_BITS
    if few:
        message = (
            f"no value of the {counted(len(brightest), 'image')} in 16 bits exceeds {256 * most + 255} of 65535, so "
            f"that of 256 levels {most + 1} are seen; `bits: {_usual_bits(most)}` in dataset.yaml spreads them over all"
        )
        yield Finding("warning", "Dark images in 16 bits", WHOLE_SET, message)
    if dark:
        bits = _usual_bits(most if few else max(dark.values()))  # one number, or images would differ that were alike
        way_out = f"`bits: {bits}` in dataset.yaml spreads them over all levels"
        for item, value in dark.items():
            message = f"no value exceeds {256 * value + 255} of 65535, as from a camera of {bits} bits; {way_out}"
            yield Finding("warning", "Nearly black images in 16 bits", image_file(item, listing), message)


def _usual_bits(brightest: int) -> int:
    """An even number, as cameras have: images that are predicted may be brighter. Of 8 bits in 16, the least."""
    bits = bits_in_use(brightest)
    return bits + bits % 2 if brightest else bits


def same_images(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Images that occur twice where that matters; unlabelled ones may be copies of labelled ones, and often are."""
    labelled: dict[str, str] = {}
    unlabelled: dict[str, str] = {}
    for item in listing.train:
        if digest := surveys[item.name].digest:
            if item.labelled and digest in labelled:
                message = f"the same as {labelled[digest]}"
                yield Finding("warning", "Labelled images that occur twice", item.name, message)
            (labelled if item.labelled else unlabelled).setdefault(digest, image_file(item, listing))
    for split, items in held_out(listing):
        kind = f"{split.capitalize()} images that"
        for item in items:
            digest = surveys[item.name].digest
            if digest in labelled:
                message = f"the same as {labelled[digest]}; remove one of the two"
                yield Finding("error", f"{kind} are also trained on", item.name, message)
            elif digest in unlabelled:
                message = f"the same as {unlabelled[digest]}"
                yield Finding("warning", f"{kind} are also trained on, without their labels", item.name, message)


def similar_images(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Validation and test images that look like labelled training images, as neighbouring frames do; closest first."""
    train = [surveys[item.name] for item in listing.train if item.labelled and surveys[item.name].fingerprint]
    digests = {survey.digest for survey in train}
    for split, items in held_out(listing):
        kind = f"{split.capitalize()} images that look like training images: keep the frames of a video on one side"
        asked = [surveys[item.name] for item in items if surveys[item.name].fingerprint]
        index, similarity = nearest([one.fingerprint for one in train], [one.fingerprint for one in asked])
        for position in (-similarity).argsort(kind="stable"):
            if similarity[position] >= ALIKE and asked[position].digest not in digests:
                message = f"looks like {train[index[position]].name} (similarity {similarity[position]:.2f})"
                yield Finding("warning", kind, asked[position].name, message)


def repeated_scenes(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Labelled images of a split that look like others of it: there are fewer scenes than images."""
    for split, items, so in (
        ("training", listing.train, "a few of them, chosen at random, show much of what all show"),
        *((split, items, "a score on them says less than their number suggests") for split, items in held_out(listing)),
    ):
        shown = (surveys[item.name] for item in items if item.labelled and surveys[item.name].fingerprint)
        seen = list({one.digest: one for one in shown}.values())  # copies are another rule's
        index, similarity = nearest_other([one.fingerprint for one in seen])
        alike = int((similarity >= ALIKE).sum())
        if seen and alike >= REPEATED * len(seen):
            first = int(similarity.argmax())
            message = (
                f"{alike} of {len(seen)} {split} images look like another of them ({seen[first].name} like "
                f"{seen[index[first]].name}, similarity {similarity[first]:.2f}): {so}"
            )
            yield Finding("warning", "Scenes that repeat, as in the frames of a video", WHOLE_SET, message)


RULES: tuple[Callable[[Listing, Surveys], Iterator[Finding]], ...] = (
    decoding_errors,
    too_few_labels,
    absent_masks,
    doubtful_files,
    ignored_masks,
    predicted_masks,
    absent_classes,
    two_codings,
    odd_images,
    further_bands,
    unused_bits,
    same_images,
    similar_images,
    repeated_scenes,
)


def pixels_by_label(items: Iterable[Item], surveys: Surveys) -> Counter[int]:
    """How many pixels of the items have each label; IGNORE is counted too."""
    count = Counter[int]()
    for item in items:
        count.update(surveys[item.name].labels or {})
    return count


def held_out(listing: Listing) -> tuple[tuple[str, tuple[Item, ...]], ...]:
    """Validation and test items, by the words for the split."""
    return ("validation", listing.val), ("test", listing.test)


def relative(path: Path, root: Path) -> str:
    """A path below the data folder, or the whole path where it lies elsewhere."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def image_file(item: Item, listing: Listing) -> str:
    """An item's name; the path of its image where that lies elsewhere, and the name is one that it was given."""
    return item.name if item.image.is_relative_to(listing.root) else str(item.image)


def labels_file(item: Item, listing: Listing) -> str:
    """The item's own mask; its image, where one file holds the labels of all."""
    own = item.mask is not None and item.mask.suffix.lower() in MASK_SUFFIXES
    return relative(item.mask, listing.root) if item.mask and own else image_file(item, listing)


def mentioned_as(item: Item, listing: Listing) -> set[str]:
    """The names under which findings may mention an item."""
    return {item.name, image_file(item, listing), labels_file(item, listing)}
