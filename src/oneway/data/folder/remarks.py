"""What is said of a folder: why it makes no data set, with the way out; or else what was decided for the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.common.words import counted, listed
from oneway.data.dataset import Item
from oneway.data.decode.regions import undrawn_class
from oneway.data.folder.description import FILE, group_of, read_description, to_flow
from oneway.data.folder.doubts import doubts
from oneway.data.folder.files import Found
from oneway.data.folder.hold_out import may_validate
from oneway.data.folder.inferred import SHOWN
from oneway.data.folder.layout import unsupported_labels
from oneway.data.folder.names import GOOD
from oneway.data.folder.unread import (
    brushed_masks,
    remark_masks_beside_annotations,
    remark_other_masks,
    remark_unread_annotations,
    remark_unread_videos,
    remark_unused_images,
    suggest_ending,
    suggest_pair,
    unread_masks,
)


def refuse_too_few(found: Found, labelled: Sequence[Item], holdout: float) -> None:
    """Refuse fewer labelled images than one that trains and, where none is named to validate, one that does."""
    both = not found.val and holdout > 0
    if len(may_validate(labelled) if both else labelled) >= (2 if both else 1):
        return
    warned = (f"{message[:1].upper()}{message[1:]}." for _, message in doubts(found))
    pair: tuple[str, ...] = ()
    if not labelled and not (found.root / FILE).is_file():
        pair = (*suggest_pair(found.root), *suggest_ending(found)) or tuple(_class_folders(found))
    unread = () if labelled else (*unread_masks(found), *brushed_masks(found))
    hints = (*pair, *warned, *unread, *unsupported_labels(found.root, found.train), *_misfits(found))
    raise UserError(f"{_too_few(found, labelled, holdout, bool(pair))}{''.join(f' {hint}' for hint in hints)}")


def _class_folders(found: Found) -> Iterator[str]:
    """A remark on folders of images that may be classes, where there are two or more and none has a mask."""
    places = {item.name.partition("/")[0] for item in found.train}
    if len(places) > 1 and all(item.name.count("/") == 1 and item.mask is None for item in found.train):
        names = listed(sorted(places), SHOWN)
        yield (
            f"If {names} are classes of whole images: those are not learnt here. A mask says of each pixel what it "
            f"shows; put masks with the names of images into {found.root / 'masks'}, in the same folders."
        )


def refuse_unnamed(found: Found) -> None:
    """Refuse colours that nothing names."""
    root, palette, inferred = found.root, found.description.palette, found.inferred
    if inferred and not inferred.named:
        shown = listed((list(colour) for colour in palette), SHOWN)
        raise UserError(
            f"{root}: the masks are painted in colours, and nothing says which class each stands for: {shown}. "
            f"{_naming(root, inferred.legend)}.{''.join(f' {remark}' for remark in inferred.remarks)}"
        )


def _too_few(found: Found, items: Sequence[Item], holdout: float, is_explained: bool) -> str:
    """The message about too few labels, or none at all, with what to do about it, unless that is said elsewhere."""
    root, part, labelled = found.root, found.description.train, len(items)
    if (made := sum(item.predicted for item in items)) and holdout and not found.val:
        masks = "mask of `oneway predict`" if made == 1 else "masks of `oneway predict`"
        return (
            f"{root}: {labelled - made} of {counted(len(found.train), 'training image')} have labels that nobody "
            f"predicted, which is too few: two are needed, since the {made} {masks} can train, and not validate. "
            "Correct some and save them anew, label more images, or name a `val` folder."
        )
    less = "one will do with --data.holdout 0, or with a `val` folder"
    needed = "one is needed" if found.val or not holdout else f"one has to train and one to validate ({less})"
    images = counted(len(found.train), "training image")
    way_out = f"Put images into {root / 'images'} and masks of the same names into {root / 'masks'}"
    way_out += f", or say in {FILE} where they are."
    if (file := root / FILE).is_file() and (said := read_description(file).train):
        places = ", ".join(f"`{key}: {place}`" for key, place in said.model_dump(exclude_none=True).items())
        way_out = f"{file} has the last word, and its `train` says {places}: correct that."
    if not labelled and (part is None or not part.is_labelled):
        missing = f"{root}: masks are missing: 0 of {images} {'has' if len(found.train) == 1 else 'have'} labels."
        return missing if is_explained else f"{missing} {way_out}"
    have = "has" if labelled == 1 else "have"
    return f"{root}: {labelled} of {images} {have} labels, which is too few: {needed}. {way_out}"


def _naming(root: Path, legend: str = "") -> str:
    """How classes are given names; `legend` is a file that has names for them."""
    named = f"have the names of {legend}, which lists all of these colours" if legend else "can be named"
    if (root / FILE).is_file():
        return f"`oneway check` prints lines for {FILE} in which they {named}"
    return f"`oneway check --save` writes a {FILE} in which they {named}"


def remarks_on(found: Found, held_out: Sequence[Item], labelled: int, holdout: float) -> Iterator[str]:
    """What was decided for the user."""
    if found.inferred and found.inferred.numbered:
        first, *others = found.inferred.remarks
        yield from (f"{first}; {_naming(found.root)}.", *others)
    elif found.inferred:
        yield from found.inferred.remarks
    if found.guessed and found.description.train:
        yield f"Images are those in {found.description.train.images}: they have the names of the masks."
    for name, merged in found.description.merge.items():
        yield f"{name} takes in {listed(merged, None)}, as {FILE} says."
    if found.description.bands:
        yield f"Bands {listed(found.description.bands)} of images are taken for red, green and blue, as {FILE} says."
    if found.description.bits:
        yield f"Images of 16 bits are taken to use {found.description.bits} of them, as {FILE} says."
    if found.description.resize_masks:
        yield f"Masks of another size than their image get its size, by the nearest pixel, as {FILE} says."
    if background := sum(item.background for item in (*found.train, *found.val)):
        shows, where = "shows" if background == 1 else "show", listed(found.description.background, SHOWN)
        yield f"{counted(background, 'image')} without labels in {where} {shows} background alone, as {FILE} says."
    yield from _good_parts(found)
    if held_out:
        are, what = "is" if len(held_out) == 1 else "are", "annotations" if found.annotations else "a mask"
        what = "labels" if background else what
        said = f"No validation set: {len(held_out)} of the {labelled} images with {what} {are} held out to validate"
        groups = found.description.groups
        whole = dict.fromkeys(group_of(item.name, groups) for item in held_out) if groups else ()
        yield f"{said}, those of {listed(whole, SHOWN)}." if whole else f"{said}."
    elif not found.val and not holdout:
        yield "No image validates: all that are labelled train (--data.holdout 0), and no score will be known."
    if found.annotations and (given := found.description.names) and undrawn_class(given) == IGNORE:
        yield f"Pixels that no region covers are ignored: {FILE} lists no background."
    yield from dict.fromkeys(remark for one in found.annotations for remark in one.remarks)
    yield from remark_other_masks(found)
    yield from remark_masks_beside_annotations(found)
    yield from remark_unread_annotations(found)
    yield from remark_unused_images(found)
    yield from remark_unread_videos(found)
    yield from unsupported_labels(found.root, found.train)
    yield from _misfits(found)


def _good_parts(found: Found) -> Iterator[str]:
    """How images without labels are background, where their folder is called as that of good parts is."""
    folders = Counter(PurePosixPath(item.name).parent for item in found.train if not item.labelled)
    if good := {folder.as_posix(): count for folder, count in folders.items() if folder.name.lower() in GOOD}:
        line, is_one = to_flow([*found.description.background, *good]), sum(good.values()) == 1
        yield (
            f"{counted(sum(good.values()), 'image')} in {listed(good, SHOWN)} {'has' if is_one else 'have'} no labels. "
            f"If nothing is to be found there, `background: {line}` in {FILE} takes all of it for background."
        )


def _misfits(found: Found) -> Iterator[str]:
    """How many files do not fit, and the first of them."""
    if found.problems:
        first = found.problems[0]
        do, them = ("does", "it") if len(found.problems) == 1 else ("do", "them")
        count = counted(len(found.problems), "file")
        yield f"{count} {do} not fit; `oneway check` lists {them}. {first.file}: {first.message}"
