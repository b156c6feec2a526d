"""What of a data set is not read: masks that fit the images as well, images that nothing names, and videos.

How to choose them, or to add them, is said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from oneway.common.errors import UserError
from oneway.common.run_files import is_output
from oneway.common.words import command, counted, listed
from oneway.data.dataset import Item
from oneway.data.decode.images import SUFFIXES
from oneway.data.decode.video import VIDEO_SUFFIXES
from oneway.data.folder.description import FILE, Description, to_flow
from oneway.data.folder.files import Found
from oneway.data.folder.formats import FINDERS
from oneway.data.folder.formats.interface import begins_with, files_with
from oneway.data.folder.layout import BELOW, CAMVID, recognise
from oneway.data.folder.mask_summary import looks_like_mask
from oneway.data.folder.names import IMAGES, INSTANCES, MASK_FOLDERS, MASKS, PHOTOS, TEST
from oneway.data.folder.pairing import pair_beside, pair_masks, stems, stems_below, unmarked
from oneway.data.folder.walk import (
    choose_folder,
    entries_of,
    folders_in,
    images_in,
    require_inside,
    stem_below,
    walk,
)

FITS = 0.5  # of the images that have a mask, the share that has one there as well
ANNOTATIONS = {
    "coco": (".json", re.compile(rb'\A\s*\{.*"(images|annotations|categories)"\s*:\s*\[', re.DOTALL)),
    "cvat": (".xml", re.compile(rb"<annotations>")),
}
"""Suffixes of files that hold the annotations of many images, and what tells them from others."""

BRUSHED = re.compile(r"task-\d+-annotation-\d+-by-\d+-tag-.+-\d+\.(png|npy)")
"""The names that Label Studio gives to masks of brush strokes."""

SHOWN = 4  # folders that a remark names


def remark_other_masks(found: Found) -> Iterator[str]:
    """A remark for each such folder beside that of the masks, if nobody has chosen."""
    part = found.description.train
    if part is None or part.masks is None or (found.root / FILE).is_file():
        return
    if part.masks == part.images:
        place = found.root / part.images  # unlabelled images may lie elsewhere
        images = [item.image for item in found.train if item.image.is_relative_to(place)]
        inside = dict.fromkeys(stem_below(image, place).split("/")[0] for image in images)
        yield f"Images and masks are those of {listed(inside)}, read together; to read one alone, name that folder."
        return
    labelled = [item for item in found.train if item.mask]
    parent = PurePosixPath(part.masks).parent
    for name in folders_in(found.root / parent):
        folder = (parent / name).as_posix()
        if name.lower() in INSTANCES or folder in _named(found.description) or is_output(found.root / folder):
            continue
        count = _fitting(found.root / folder, found.root, labelled)
        if count >= max(1, FITS * len(labelled)):
            yield (
                f"Masks are those in {part.masks}; the ones in {folder} fit as well ({count} of {len(labelled)}). To "
                f"read these, write `train: {{images: {part.images}, masks: {folder}}}` into {FILE}."
            )


def remark_masks_beside_annotations(found: Found) -> Iterator[str]:
    """A remark for each folder of masks beside that of images whose labels are annotations, if nobody has chosen."""
    part = found.description.train
    if part is None or part.annotations is None or part.images == "." or (found.root / FILE).is_file():
        return
    parent = PurePosixPath(part.images).parent
    for folder in ((parent / name).as_posix() for name in folders_in(found.root / parent)):
        if folder in _named(found.description) or is_output(found.root / folder):
            continue
        if count := _fitting(found.root / folder, found.root, list(found.train)):
            yield (
                f"Labels are those of {part.annotations[1]}; {counted(count, 'mask')} in {folder} with the names of "
                f"images {'is' if count == 1 else 'are'} not read. To read masks instead, write "
                f"`train: {to_flow({'images': part.images, 'masks': folder})}` into {FILE}."
            )


def remark_unread_annotations(found: Found) -> Iterator[str]:
    """A remark on files of annotations beside the folders of images and masks, if nobody has chosen."""
    part = found.description.train
    if part is None or part.masks is None or (found.root / FILE).is_file():
        return
    for key, (suffix, sign) in ANNOTATIONS.items():
        files = [file for file in files_with(suffix, found.root, ".") if not (found.root / file).is_symlink()]
        if held := [file for file in files if begins_with(sign, found.root / file)]:
            yield (
                f"Labels are the masks in {part.masks}; the annotations in {listed(held, SHOWN)} are not read. To read "
                f"these instead, write `train: {to_flow({'images': part.images, key: held[0]})}` into {FILE}."
            )


def remark_unused_images(found: Found) -> Iterator[str]:
    """Remarks on folders of images, with masks of their own or without, beside those that are read or around them."""
    labelled = {folder: len(images) for folder, images in labelled_apart(found).items()}
    tests = {folder: count for folder, count in labelled.items() if PurePosixPath(folder).name.lower() in TEST}
    annotated = _annotated_tests(found)
    if tests or annotated:
        yield _say_tests(found, tests or annotated, "annotations" if annotated else "masks")
    if more := {folder: count for folder, count in labelled.items() if folder not in tests}:
        is_one = sum(more.values()) == 1
        which = f"{counted(sum(more.values()), 'image')} with {'its mask' if is_one else 'their masks'}"
        way_out = _add_labelled(found, tests=bool(tests))
        yield f"{which} in {listed(more, SHOWN)} {'is' if is_one else 'are'} not used; {way_out}."
    unused: dict[str, int] = {}
    for folder in _unknown(found):
        unused |= {} if folder in labelled or folder in annotated else _count_unlabelled(found, folder)
    if folders := [folder for folder, count in unused.items() if count]:
        count = sum(unused.values())
        added = [*(found.description.unlabelled if (found.root / FILE).is_file() else ()), *folders]
        yield (
            f"{counted(count, 'image')} in {listed(folders, SHOWN)} {'is' if count == 1 else 'are'} not used; "
            f"`unlabelled: {to_flow(added)}` in {FILE} adds {'it' if count == 1 else 'them'}."
        )


def labelled_apart(found: Found) -> dict[str, list[tuple[Path, Path]]]:
    """The images that have masks in folders which are not read, with these masks, by these folders."""
    folders = {folder: _labelled_in(found, folder) for folder in _unknown(found)}
    return {folder: images for folder, images in folders.items() if images}


def _annotated_tests(found: Found) -> dict[str, int]:
    """How many images each folder of tests has whose annotations lie in it, as those that are read do in theirs."""
    part, tests = found.description.train, dict[str, int]()
    if part is None or part.annotations is None or part.annotations[0] not in FINDERS:
        return tests
    for folder in (folder for folder in _unknown(found) if PurePosixPath(folder).name.lower() in TEST):
        with suppress(UserError):
            if FINDERS[part.annotations[0]](found.root, folder):
                tests[folder] = len(images_in(found.root / folder, found.root, []))
    return tests


def _labelled_in(found: Found, folder: str) -> list[tuple[Path, Path]]:
    """The images of a folder with their masks, which lie beside them as `masks/` beside `images/`, or as those read do.

    Of `images/test`, masks are in `masks/test` where those of `images/train` are in `masks/train`; of `test`, in
    `testannot`.
    """
    place, part = found.root / folder, found.description.train
    try:
        files = images_in(place, found.root, [], masks=True)
        images, masks = (stems_below(files, place, names) for names in (IMAGES, MASKS))
        if not masks and part and part.masks and PurePosixPath(folder).parent == PurePosixPath(part.images).parent:
            drawn = part.masks.replace(PurePosixPath(part.images).name, place.name)
            if drawn != part.masks and (found.root / drawn).is_dir():
                masks = stems(images_in(found.root / drawn, found.root, [], masks=True), found.root / drawn)
                images = stems(files, place)
    except UserError:
        return []
    pairs = pair_masks(images, masks)
    return [(images[stem][0], pairs[stem][0]) for stem in sorted(images.keys() & pairs.keys())]


def _unknown(found: Found) -> list[str]:
    """The folders beside those that are read, or around them, that have no part to play."""
    places = {above: None for part in found.description.parts for above in PurePosixPath(part.images).parents}
    beside = ((place / name).as_posix() for place in places for name in folders_in(found.root / place))
    return [folder for folder in beside if not _is_known(found, folder)]


def remark_unread_videos(found: Found) -> Iterator[str]:
    """A remark on videos in folders that are not read, where no images from elsewhere are asked for."""
    if found.unlabelled is not None:
        return
    places = {above: None for part in found.description.parts for above in PurePosixPath(part.images).parents}
    files = [found.root / place / entry.name for place in places for entry in entries_of(found.root / place)]
    for folder in _unknown(found):
        with suppress(UserError):
            files += walk(found.root / folder, found.root, [])
    videos = [file for file in files if file.suffix.lower() in VIDEO_SUFFIXES and file.is_file()]
    if videos:
        common, names = Path(os.path.commonpath(videos)), (file.relative_to(found.root).as_posix() for file in videos)
        are, whose = ("is", "its frames") if len(videos) == 1 else ("are", "their frames")
        if common.is_dir() and images_in(common, found.root, []):
            common, whose = videos[0], "the frames of the first"
        read = command("--data.unlabelled", common)
        yield f"{listed(names, SHOWN)} {are} not read; `{read}` trains on {whose}, without labels."


def _say_tests(found: Found, tests: dict[str, int], labels: str) -> str:
    """A remark on test images with masks or annotations, and on how a model is scored by them."""
    count, place = sum(tests.values()), found.root / next(iter(tests))
    it, do, whose = ("it", "does", "its") if count == 1 else ("them", "do", "their")
    labels = f"{whose} {labels.removesuffix('s') if count == 1 and labels == 'masks' else labels}"
    way_out = f"put {it}, with {labels}, into a folder of {whose} own, to score a model by {it}"
    if _is_data_set(place):
        way_out = f"`{command('oneway', 'eval', 'RUN', '--data', place)}` scores a model by {it}"
    return f"{counted(count, 'image')} with {labels} in {listed(tests, SHOWN)} {do} not train or validate; {way_out}."


def _is_data_set(folder: Path) -> bool:
    """Whether the labels in a folder can be read without what is around it."""
    with suppress(UserError):
        parts = recognise(folder).parts
        return any(part.annotations or (part.masks and part.images != ".") for part in parts)
    return False


def _add_labelled(found: Found, tests: bool) -> str:
    """How images with masks in folders of their own join those that train; `tests`: a test set is among them."""
    train = found.description.train
    apart = found.description.val is not None or tests
    if (
        train
        and train.masks
        and not apart
        and all(BELOW.fullmatch(f"{name}/x") for name in (train.images, train.masks))
    ):
        return f"`train: {{images: ., masks: .}}` in {FILE} reads `images` and `masks` in every folder"
    beside = [name for name in (train.images, train.masks) if name] if train else ["images"]
    return f"to train on them, put them into {listed(beside)}"


def _is_known(found: Found, folder: str) -> bool:
    """Whether a folder has a part to play, holds labels by its name, or was written by oneway."""
    name = PurePosixPath(folder).name.lower()
    labels = name.startswith(tuple(MASK_FOLDERS)) or name.endswith(CAMVID)
    inside = any(PurePosixPath(folder).is_relative_to(path) for path in _used(found.description))
    return labels or inside or folder in _named(found.description) or is_output(found.root / folder)


def _count_unlabelled(found: Found, folder: str) -> dict[str, int]:
    """How many images are in a folder, by where they are in it; nothing if it has masks, or is one of masks."""
    labelled = [item for item in found.train if item.mask]
    if found.annotations and _fitting(found.root / folder, found.root, list(found.train)):
        return {}
    try:
        inner = choose_folder(found.root, folder, (*IMAGES, *PHOTOS)) or folder
        files = images_in(found.root / inner, found.root, [])
        masks = choose_folder(found.root, folder, MASKS, with_images=True)
    except UserError:
        return {}
    drawn = masks or pair_beside(stems(files, found.root / inner))[1]
    fits = _fitting(found.root / inner, found.root, labelled) >= max(1, FITS * len(labelled))
    return {} if drawn or fits else {inner: len(files)}


def _used(description: Description) -> set[str]:
    """Folders that have a part to play already."""
    places = (path for part in description.parts for path in (part.images, part.masks) if path)
    return {*description.unlabelled, *description.background, *places}


def _named(description: Description) -> set[str]:
    """The folders of `_used`, and those around them."""
    used = _used(description)
    return used | {above.as_posix() for path in used for above in PurePosixPath(path).parents}


def _fitting(folder: Path, home: Path, labelled: list[Item]) -> int:
    """How many of the images have a mask in a folder; none if what is there are no masks."""
    try:
        files = [path for path in walk(folder, home, []) if path.suffix.lower() in SUFFIXES - {".jpg", ".jpeg"}]
        stems = {unmarked(path.stem): path for path in files}
        fitting = [stems[item.image.stem] for item in labelled if item.image.stem in stems]
        return len(fitting) if fitting and looks_like_mask(require_inside(fitting[0], home)) else 0
    except UserError:
        return 0
