"""Which of the common layouts the files of a folder follow."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from oneway.common.errors import UserError
from oneway.common.run_files import is_output
from oneway.data.decode.images import hidden
from oneway.data.decode.masks import MASK_SUFFIXES
from oneway.data.folder.class_table import TABLES
from oneway.data.folder.description import FILE, DatasetPart, Description, read_description
from oneway.data.folder.formats import FINDERS, LAYOUTS, TWO_FILES
from oneway.data.folder.names import IMAGES, MASKS, TEST, TRAIN, UNLABELLED, VAL
from oneway.data.folder.walk import choose_folder, require_inside

CAMVID = "annot"  # appended to the name of an image folder, the folder of its masks

LISTS = ("imagesets", "segmentation")  # folders in which Pascal VOC has the lists of its splits

TRAIN_WORD = re.compile(r"(?<![a-z])train(?:ing)?", re.IGNORECASE)

BELOW = re.compile(rf"(?:(.*?)/)??({'|'.join((*IMAGES, *MASKS))})/(.+)", re.IGNORECASE)
"""A path: what is before the first folder of images or masks in it, the name of that folder, and what is behind."""

APART = frozenset((FILE, *TABLES, *TRAIN, *VAL, *TEST, LISTS[0]))  # names in a folder that is a data set by itself


def read_layout(root: Path, names: tuple[str, ...] = IMAGES) -> Description:
    """The description in the folder, if there is one, with the folders it does not name; see `recognise`."""
    file = require_inside(root / FILE, root)
    if (misnamed := file.with_suffix(".yml")).exists():
        raise UserError(f"{misnamed}: would not be read. Call it {FILE}.")
    given = read_description(file) if file.is_file() else Description()
    if given.train is not None:
        return _with_test(root, given)
    try:
        layout = recognise(root, names)
        said = {key: getattr(given, key) for key in given.model_fields_set}
        unlabelled = tuple(dict.fromkeys((*layout.unlabelled, *given.unlabelled)))
        parts = {"train": layout.train, "val": layout.val, "unlabelled": unlabelled}
        return _with_test(root, Description(**{"test": layout.test} | said | parts))
    except ValidationError as error:
        raise UserError(f"{file}: {error.errors()[0]['msg'].removeprefix('Value error, ')}.") from None


def recognise(root: Path, names: tuple[str, ...] = IMAGES) -> Description:
    """The training, validation and unlabelled images of a folder, by the names of its files and subfolders.

    The first of these that is there decides which images train, and which validate:

    1. a format of annotations that says it: in a file, by folders as only it has them, or with a file for each part;
    2. `images/train` and `images/val`, with their masks in `masks/train` and `masks/val`;
    3. a folder of images beside that of their masks, or a file of their annotations, and Pascal VOC's lists of names;
    4. such a folder without lists: its images train, and those in a folder `val` validate;
    5. folders `train` and `val`; without the former, all images here train.

    Those in a folder `unlabelled` train as well. `names` are what a folder of images beside one of masks may be called.
    """
    unlabelled = _images_of(root, choose_folder(root, ".", UNLABELLED))
    if (layout := _of_a_format(root)) is not None:
        return layout.model_copy(update={"unlabelled": (*layout.unlabelled, *unlabelled)})
    here = _part(root, ".", names)
    labels_beside = here.images != "." and here.is_labelled
    if labels_beside and (split := _split(root, here)):
        within = _images_of(root, choose_folder(root, here.images, UNLABELLED))
        return Description(train=split[0], val=split[1], unlabelled=(*unlabelled, *within))
    if labels_beside:
        train, val = _listed(root, here) or (here, _part_in(root, VAL, names))
    else:
        train, val = _part_in(root, TRAIN, names) or _with_masks_below(root, here), _part_in(root, VAL, names)
    return Description(train=train, val=val, unlabelled=unlabelled)


def _with_test(root: Path, description: Description) -> Description:
    """A description, with the test images that it does not name, unless they train without labels."""
    test = None if description.test or description.train is None else _test_beside(root, description.train)
    further = (*description.unlabelled, *description.background)
    if test is None or any(PurePosixPath(test.images).is_relative_to(folder) for folder in further):
        return description
    return description.model_copy(update={"test": test})


def _test_beside(root: Path, train: DatasetPart) -> DatasetPart | None:
    """The test images, where they lie as those of training do, with `test` in place of `train`; or else in `test`.

    Their labels are of the same kind. There are none where a list chooses the images that train.
    """
    if train.list is not None:
        return None
    named = train.model_dump(exclude_none=True)
    for word in ("test", "Test", "TEST", *TEST[1:]):
        moved = {key: TRAIN_WORD.sub(word, path) for key, path in named.items()}
        if moved != named and all(require_inside(root / path, root).exists() for path in moved.values()):
            return None if {*moved.values()} & {*named.values()} else DatasetPart(**moved)
    if not TRAIN_WORD.search(train.images):
        with suppress(UserError):  # it may be unclear where its labels are
            apart = _part_in(root, TEST, IMAGES)
            return apart if apart and apart.model_dump(exclude_none=True).keys() == named.keys() else None
    return None


def _images_of(root: Path, folder: str | None) -> tuple[str, ...]:
    return () if folder is None else (choose_folder(root, folder, IMAGES) or folder,)


def _of_a_format(root: Path) -> Description | None:
    """The parts of the first format that knows the folder for its own."""
    masks = choose_folder(root, ".", MASKS, with_images=True)
    bare = masks is None or masks.lower() == "annotations"  # where COCO has pictures beside its files
    layouts = (known(root) for known in (*LAYOUTS, *(TWO_FILES if bare else ())))
    return next((layout for layout in layouts if layout is not None), None)


def _part(root: Path, folder: str, names: tuple[str, ...]) -> DatasetPart:
    """Images in a folder called so, or right here; masks in another, or in CamVid's, or else annotations."""
    images = choose_folder(root, folder, names) or folder
    masks = choose_folder(root, folder, MASKS, with_images=True)
    if masks is None and folder != ".":
        parent, name = PurePosixPath(folder).parent.as_posix(), PurePosixPath(folder).name
        masks = choose_folder(root, parent, (f"{name}{CAMVID}".lower(),), with_images=True)
    if masks is not None:
        return DatasetPart(images=images, masks=masks)
    for key, find in FINDERS.items():
        if (place := find(root, folder)) is not None:
            return DatasetPart(images=images, **{key: place})
    return DatasetPart(images=images)


def _part_in(root: Path, called: tuple[str, ...], names: tuple[str, ...]) -> DatasetPart | None:
    """The part in a folder that is called so, if there is one."""
    folder = choose_folder(root, ".", called)
    return None if folder is None else _with_masks_below(root, _part(root, folder, names))


def _with_masks_below(root: Path, part: DatasetPart) -> DatasetPart:
    """A part without labels; with them, if folders in it, such as those of patients, each have images and masks.

    There are two of them at least, and none is a data set by itself, with splits, a table of classes or a description.
    """
    if part.is_labelled:
        return part
    top, kinds = str(root / part.images), defaultdict[str, set[bool]](set)
    for folder, inner, files in os.walk(top):
        inner[:] = [name for name in inner if not hidden(PurePosixPath(name)) and not is_output(Path(folder, name))]
        if not APART.isdisjoint(map(str.lower, inner if folder == top else (*inner, *files))):
            return part
        found = BELOW.fullmatch(Path(folder, "file").relative_to(top).as_posix())
        if found and any(Path(name).suffix.lower() in MASK_SUFFIXES for name in files):
            kinds[found[1]].add(found[2].lower() in MASKS)
    both = sum(len(found) == 2 for found in kinds.values())
    return part.model_copy(update={"masks": part.images}) if both > 1 else part


def _split(root: Path, here: DatasetPart) -> tuple[DatasetPart, DatasetPart] | None:
    """The parts of `images/train`, `images/val`, `masks/train` and `masks/val`."""
    if here.masks is None:
        return None
    chosen = [choose_folder(root, side, names) for names in (TRAIN, VAL) for side in (here.images, here.masks)]
    match chosen:
        case [str(images), str(masks), str(val_images), str(val_masks)]:
            return DatasetPart(images=images, masks=masks), DatasetPart(images=val_images, masks=val_masks)
    return None


def _listed(root: Path, here: DatasetPart) -> tuple[DatasetPart, DatasetPart | None] | None:
    """The parts by Pascal VOC's lists: of the images that train and, if there is one, of those that validate."""
    above = choose_folder(root, ".", LISTS[:1])
    folder = above and choose_folder(root, above, LISTS[1:])
    if folder is None:
        return None

    def part(name: str) -> DatasetPart | None:
        path = f"{folder}/{name}.txt"
        return here.model_copy(update={"list": path}) if require_inside(root / path, root).is_file() else None

    if (train := part("train")) is not None:
        return train, part("val")
    return None if (train := part("trainval")) is None else (train, None)
