"""Images and videos in folders that have no part to play: what they hold is said, and how it can be used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from oneway.common.errors import UserError
from oneway.common.words import command, counted, listed
from oneway.data.decode.video import VIDEO_SUFFIXES
from oneway.data.folder.description import FILE
from oneway.data.folder.files import Found
from oneway.data.folder.layout import BELOW, CAMVID
from oneway.data.folder.names import IMAGES, MASK_FOLDERS, MASKS, PHOTOS
from oneway.data.folder.other_labels import count_masks, fits_as_well
from oneway.data.folder.pairing import pair_beside, pair_masks, stems, stems_below
from oneway.data.folder.walk import choose_folder, entries_of, folders_in, images_in, walk
from oneway.data.folder.yaml_text import to_flow

SHOWN = 4  # folders or videos that a remark names

Counts = Mapping[str, int]
"""Images by the folder that they are in, below the root."""


def remark_unused(found: Found) -> Iterator[str]:
    """Remarks on images of tests, on others that are labelled, on those that are not, and on videos."""
    if found.test:
        yield _about_tests(len(found.test))
    if labelled := {folder: len(images) for folder, images in labelled_apart(found).items()}:
        yield _about_labelled(found, labelled)
    if unlabelled := _unlabelled(found, {*labelled}):
        yield _about_unlabelled(found, unlabelled)
    if found.unlabelled is None and (videos := _videos(found)):  # else images from elsewhere are asked for
        yield _about_videos(found, videos)


def labelled_apart(found: Found) -> dict[str, list[tuple[Path, Path]]]:
    """The images that have masks in folders which are not read, with these masks, by these folders."""
    folders = {folder: _labelled_in(found, folder) for folder in _unused_folders(found)}
    return {folder: images for folder, images in folders.items() if images}


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


def _unlabelled(found: Found, labelled: set[str]) -> Counts:
    """The images in other folders than those with labels."""
    counts = dict(_without_masks(found, folder) for folder in _unused_folders(found) if folder not in labelled)
    return {place: count for place, count in counts.items() if count}


def _without_masks(found: Found, folder: str) -> tuple[str, int]:
    """Where in a folder its images are, and how many; none if they have masks, or are masks themselves."""
    none = folder, 0
    if found.annotations and count_masks(found, folder, found.train):
        return none
    try:
        inner = choose_folder(found.root, folder, (*IMAGES, *PHOTOS)) or folder
        files = images_in(found.root / inner, found.root, [])
        if choose_folder(found.root, folder, MASKS, with_images=True):
            return none
    except UserError:
        return none
    labelled = [item for item in found.train if item.mask]
    has_masks = pair_beside(stems(files, found.root / inner))[1]
    are_masks = fits_as_well(count_masks(found, inner, labelled), labelled)
    return none if has_masks or are_masks else (inner, len(files))


def _videos(found: Found) -> list[Path]:
    """Those around the images that are read, and in the folders that are not."""
    files = [found.root / place / entry.name for place in _around(found) for entry in entries_of(found.root / place)]
    for folder in _unused_folders(found):
        with suppress(UserError):
            files += walk(found.root / folder, found.root, [])
    return [file for file in files if file.suffix.lower() in VIDEO_SUFFIXES and file.is_file()]


def _unused_folders(found: Found) -> list[str]:
    """The folders beside those that are read, or around them, that have no part to play and are not inside of any."""
    beside = ((place / name).as_posix() for place in _around(found) for name in folders_in(found.root / place))
    free = [folder for folder in beside if not found.is_taken(folder) and not _is_of_labels(folder)]
    used = [(found.root / path).resolve() for path in found.description.folders]  # links may lead to them
    return [folder for folder in free if not any((found.root / folder).resolve().is_relative_to(one) for one in used)]


def _around(found: Found) -> dict[PurePosixPath, None]:
    """The folders around the images of each part, in the order of parts, from the nearest to the root."""
    return {above: None for part in found.description.parts for above in PurePosixPath(part.images).parents}


def _is_of_labels(folder: str) -> bool:
    name = PurePosixPath(folder).name.lower()
    return name.startswith(tuple(MASK_FOLDERS)) or name.endswith(CAMVID)


def _about_tests(count: int) -> str:
    """A remark on images for tests, and on how a model is scored by them."""
    neither, it = ("trains nor validates", "it") if count == 1 else ("train nor validate", "them")
    return f"{counted(count, 'test image')} neither {neither}; `oneway eval RUN --split test` scores a model by {it}."


def _about_labelled(found: Found, images: Counts) -> str:
    """A remark on images with masks, and on how they join those that train."""
    count, train = sum(images.values()), found.description.train
    are, theirs = ("is", "its mask") if count == 1 else ("are", "their masks")
    places = [name for name in (train.images, train.masks) if name] if train else ["images"]
    has_splits = found.description.val is not None or found.test
    if len(places) == 2 and not has_splits and all(BELOW.fullmatch(f"{name}/x") for name in places):
        way_out = f"`train: {{images: ., masks: .}}` in {FILE} reads `images` and `masks` in every folder"
    else:
        way_out = f"to train on them, put them into {listed(places)}"
    return f"{counted(count, 'image')} with {theirs} in {listed(images, SHOWN)} {are} not used; {way_out}."


def _about_unlabelled(found: Found, images: Counts) -> str:
    count, described = sum(images.values()), (found.root / FILE).is_file()
    are, them = ("is", "it") if count == 1 else ("are", "them")
    line = to_flow([*(found.description.unlabelled if described else ()), *images])
    return (
        f"{counted(count, 'image')} in {listed(images, SHOWN)} {are} not used; "
        f"`unlabelled: {line}` in {FILE} adds {them}."
    )


def _about_videos(found: Found, videos: list[Path]) -> str:
    are, whose = ("is", "its frames") if len(videos) == 1 else ("are", "their frames")
    common = Path(os.path.commonpath(videos))
    if common.is_dir() and images_in(common, found.root, []):  # which would be read as well
        common, whose = videos[0], "the frames of the first"
    names = listed((file.relative_to(found.root).as_posix() for file in videos), SHOWN)
    read = command("--data.unlabelled", common)
    return f"{names} {are} not read; `{read}` trains on {whose}, without labels."
