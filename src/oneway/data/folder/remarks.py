"""What was decided for the user about a folder, and what of it is not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from oneway.common.terms import IGNORE
from oneway.common.words import counted, listed
from oneway.data.dataset import Item
from oneway.data.decode.regions import undrawn_class
from oneway.data.folder.description import FILE
from oneway.data.folder.files import Found
from oneway.data.folder.groups import group_of
from oneway.data.folder.inferred import SHOWN
from oneway.data.folder.names import GOOD
from oneway.data.folder.other_labels import remark_other_labels
from oneway.data.folder.unreadable_labels import unsupported_labels
from oneway.data.folder.unused import remark_unused
from oneway.data.folder.yaml_text import to_flow


def remarks_on(found: Found, held_out: Sequence[Item], labelled: int, holdout: float) -> Iterator[str]:
    """What was decided for the user; `held_out` are some of so many labelled images, by the share that was asked."""
    yield from _inferred(found)
    yield from _as_described(found)
    yield from _good_parts(found)
    if held_out:
        yield _held_out(found, held_out, labelled)
    elif not found.val and not holdout:
        yield "No image validates: all that are labelled train (--data.holdout 0), and no score will be known."
    if found.annotations and (given := found.description.names) and undrawn_class(given) == IGNORE:
        yield f"Pixels that no region covers are ignored: {FILE} lists no background."
    yield from dict.fromkeys(remark for one in found.annotations for remark in one.remarks)
    yield from remark_other_labels(found)
    yield from remark_unused(found)
    yield from unsupported_labels(found)
    yield from misfits(found)


def _inferred(found: Found) -> Iterator[str]:
    """Where the classes are from, and the images."""
    if found.inferred and found.inferred.numbered:
        first, *others = found.inferred.remarks
        yield from (f"{first}; {naming(found.root)}.", *others)
    elif found.inferred:
        yield from found.inferred.remarks
    if found.guessed and found.description.train:
        yield f"Images are those in {found.description.train.images}: they have the names of the masks."


def naming(root: Path, legend: str = "") -> str:
    """How classes are given names; `legend` is a file that has names for them."""
    named = f"have the names of {legend}, which lists all of these colours" if legend else "can be named"
    if (root / FILE).is_file():
        return f"`oneway check` prints lines for {FILE} in which they {named}"
    return f"`oneway check --save` writes a {FILE} in which they {named}"


def _as_described(found: Found) -> Iterator[str]:
    """What a description decides about images and masks that the files do not show."""
    given = found.description
    for name, merged in given.merge.items():
        yield f"{name} takes in {listed(merged, None)}, as {FILE} says."
    if given.bands:
        yield f"Bands {listed(given.bands)} of images are taken for red, green and blue, as {FILE} says."
    if given.bits:
        yield f"Images of 16 bits are taken to use {given.bits} of them, as {FILE} says."
    if given.resize_masks:
        yield f"Masks of another size than their image get its size, by the nearest pixel, as {FILE} says."
    if background := _count_background(found):
        shows, where = "shows" if background == 1 else "show", listed(given.background, SHOWN)
        yield f"{counted(background, 'image')} without labels in {where} {shows} background alone, as {FILE} says."


def _count_background(found: Found) -> int:
    return sum(item.background for item in (*found.train, *found.val, *found.test))


def _good_parts(found: Found) -> Iterator[str]:
    """How images without labels are background, where their folder is called as that of good parts is."""
    images = [found.root / part.images for part in found.description.parts]
    bare = (item for item in found.train if not item.labelled and any(map(item.image.is_relative_to, images)))
    folders = Counter(PurePosixPath(item.name).parent for item in bare)
    if good := {folder.as_posix(): count for folder, count in folders.items() if folder.name.lower() in GOOD}:
        line, is_one = to_flow([*found.description.background, *good]), sum(good.values()) == 1
        yield (
            f"{counted(sum(good.values()), 'image')} in {listed(good, SHOWN)} {'has' if is_one else 'have'} no labels. "
            f"If nothing is to be found there, `background: {line}` in {FILE} takes all of it for background."
        )


def _held_out(found: Found, held_out: Sequence[Item], labelled: int) -> str:
    are, groups = "is" if len(held_out) == 1 else "are", found.description.groups
    what = "labels" if _count_background(found) else "annotations" if found.annotations else "a mask"
    said = f"No validation set: {len(held_out)} of the {labelled} images with {what} {are} held out to validate"
    whole = dict.fromkeys(group_of(item.name, groups) for item in held_out) if groups else ()
    return f"{said}, those of {listed(whole, SHOWN)}." if whole else f"{said}."


def misfits(found: Found) -> Iterator[str]:
    """How many files do not fit, and the first of them."""
    if found.problems:
        first = found.problems[0]
        do, them = ("does", "it") if len(found.problems) == 1 else ("do", "them")
        count = counted(len(found.problems), "file")
        yield f"{count} {do} not fit; `oneway check` lists {them}. {first.file}: {first.message}"
