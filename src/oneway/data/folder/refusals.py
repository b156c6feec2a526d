"""Why a folder makes no data set: too few labels, or classes without names; with the way out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.run_files import is_output
from oneway.common.words import counted, listed
from oneway.data.dataset import Item
from oneway.data.folder.description import FILE, read_description
from oneway.data.folder.doubts import doubts
from oneway.data.folder.files import Found
from oneway.data.folder.hold_out import may_validate
from oneway.data.folder.inferred import SHOWN
from oneway.data.folder.mask_summary import looks_like_mask
from oneway.data.folder.pairing import pair_masks, stems
from oneway.data.folder.remarks import misfits, naming
from oneway.data.folder.unreadable_labels import brushed_masks, masks_of_other_kinds, unsupported_labels
from oneway.data.folder.walk import MOST_BELOW, folders_in, images_in
from oneway.data.folder.yaml_text import to_flow

PAIRED = 0.5  # share of the files in a folder, from which on those of the same names in another may be their images
ENDINGS = 4  # of names that are looked at


def refuse_too_few(found: Found, labelled: Sequence[Item], holdout: float) -> None:
    """Refuse fewer labelled images than one that trains and, where none is named to validate, one that does."""
    both = not found.val and holdout > 0
    if len(may_validate(labelled) if both else labelled) >= (2 if both else 1):
        return
    guesses, unread = list[str](), list[str]()
    if not labelled:
        guesses = [] if (found.root / FILE).is_file() else _guesses(found)
        unread = [*masks_of_other_kinds(found), *brushed_masks(found)]
    warned = (f"{message[:1].upper()}{message[1:]}." for _, message in doubts(found))
    hints = (*guesses, *warned, *unread, *unsupported_labels(found), *misfits(found))
    raise UserError(" ".join([_too_few(found, labelled, both, bool(guesses)), *hints]))


def _too_few(found: Found, labelled: Sequence[Item], both: bool, is_explained: bool) -> str:
    """The message about too few labels, or none at all, with what to do about it, unless that is said elsewhere."""
    root, part, count = found.root, found.description.train, len(labelled)
    images = counted(len(found.train), "training image")
    if both and (made := sum(item.predicted for item in labelled)):
        masks = "mask of `oneway predict`" if made == 1 else "masks of `oneway predict`"
        return (
            f"{root}: {count - made} of {images} have labels that nobody "
            f"predicted, which is too few: two are needed, since the {made} {masks} can train, and not validate. "
            "Correct some and save them anew, label more images, or name a `val` folder."
        )
    if not labelled and (part is None or not part.is_labelled):
        missing = f"{root}: masks are missing: 0 of {images} {'has' if len(found.train) == 1 else 'have'} labels."
        return missing if is_explained else f"{missing} {_way_out(root)}"
    if not labelled and part and part.annotations and not (root / FILE).is_file():
        return (
            f"{root}: {part.annotations[1]} annotates none of {images}. It has to list them by their names, or by "
            f"their paths below {part.images}."
        )
    less = "one will do with --data.holdout 0, or with a `val` folder"
    needed = f"one has to train and one to validate ({less})" if both else "one is needed"
    have = "has" if count == 1 else "have"
    return f"{root}: {count} of {images} {have} labels, which is too few: {needed}. {_way_out(root)}"


def _way_out(root: Path) -> str:
    if (file := root / FILE).is_file() and (said := read_description(file).train):
        places = ", ".join(f"`{key}: {place}`" for key, place in said.model_dump(exclude_none=True).items())
        return f"{file} has the last word, and its `train` says {places}: correct that."
    put = f"Put images into {root / 'images'} and masks of the same names into {root / 'masks'}"
    return f"{put}, or say in {FILE} where they are."


def _guesses(found: Found) -> list[str]:
    """Which files may be the masks that were not found; else what the folders may be, if not images that have masks."""
    return [*_pair_of_folders(found.root), *_unknown_ending(found)] or [*_class_folders(found)]


def _pair_of_folders(root: Path) -> Iterator[str]:
    """The line that reads two folders whose names say nothing, where files of both have the same names."""
    folders = (name for name in folders_in(root, MOST_BELOW) if not is_output(root / name))
    files = {name: images_in(root / name, root, []) for name in folders}
    for images, masks in permutations(files, 2):
        pictures, drawn = (stems(files[name], root / name) for name in (images, masks))
        pairs = pictures.keys() & pair_masks(pictures, drawn)
        if len(pairs) > max(1, PAIRED * len(drawn)) and looks_like_mask(files[masks][0]):
            line = to_flow({"images": images, "masks": masks})
            said = f"Files in {masks} have the names of those in {images}"
            yield f"{said}: if they are masks, write `train: {line}` into {FILE}."
            return


def _unknown_ending(found: Found) -> Iterator[str]:
    """What to call masks beside their images whose names have an unknown ending; nothing where there are none such."""
    images = {(item.image.parent, item.image.stem): item.image for item in found.train}
    endings: dict[str, list[Path]] = defaultdict(list)
    for (folder, stem), image in images.items():
        beginnings = (stem[:length] for length in range(len(stem) - 1, 0, -1))
        longest = next((name for name in beginnings if (folder, name) in images), stem)
        endings[stem.removeprefix(longest)].append(image)
    words = [ending for ending in endings if re.search("[a-z]", ending, re.IGNORECASE)]
    for ending in sorted(words, key=lambda ending: -len(endings[ending]))[:ENDINGS]:
        files = endings[ending]
        if len(files) > 1 and all(map(looks_like_mask, files[:2])):
            yield (
                f"{len(files)} files end with {ending!r} behind the name of an image ({files[0].name} is the first): "
                "if they are masks, let them end with '_mask' instead."
            )
            return


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
            f"{naming(root, inferred.legend)}.{''.join(f' {remark}' for remark in inferred.remarks)}"
        )
