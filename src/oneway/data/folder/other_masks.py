"""Another folder whose masks fit the images as well: which one is read is said, and how to choose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from oneway.common.errors import UserError
from oneway.common.run_files import is_output
from oneway.common.words import listed
from oneway.data.dataset import Item
from oneway.data.decode.images import SUFFIXES
from oneway.data.folder.description import FILE, Description
from oneway.data.folder.files import Found, unmarked
from oneway.data.folder.mask_summary import summarise_mask
from oneway.data.folder.names import INSTANCES
from oneway.data.folder.walk import entries_of, require_inside, stem_below, walk

FITS = 0.5  # of the images that have a mask, the share that has one there as well
MOST_VALUES = 64  # in a mask; a photograph has more


def remark_other_masks(found: Found) -> Iterator[str]:
    """A remark for each such folder beside that of the masks, if nobody has chosen."""
    part = found.description.train
    if part is None or part.masks is None or (found.root / FILE).is_file():
        return
    if part.masks == part.images:
        inside = dict.fromkeys(stem_below(item.image, found.root / part.images).split("/")[0] for item in found.train)
        yield f"Images and masks are those of {listed(inside)}, read together; to read one alone, name that folder."
        return
    labelled = [item for item in found.train if item.mask]
    parent = PurePosixPath(part.masks).parent
    for entry in entries_of(found.root / parent):
        folder = (parent / entry.name).as_posix()
        if not entry.is_dir(follow_symlinks=False) or entry.name.lower() in INSTANCES or folder == part.masks:
            continue
        if folder in _named(found.description) or is_output(found.root / folder):
            continue
        count = _fitting(found.root / folder, found.root, labelled)
        if count >= max(1, FITS * len(labelled)):
            yield (
                f"Masks are those in {part.masks}; the ones in {folder} fit as well ({count} of {len(labelled)}). To "
                f"read these, write `train: {{images: {part.images}, masks: {folder}}}` into {FILE}."
            )


def _named(description: Description) -> set[str]:
    """Folders that have a part to play already, and those around them."""
    parts = [part for part in (description.train, description.val) if part]
    used = {*description.unlabelled, *(path for part in parts for path in (part.images, part.masks) if path)}
    return used | {above.as_posix() for path in used for above in PurePosixPath(path).parents}


def _fitting(folder: Path, home: Path, labelled: list[Item]) -> int:
    """How many of the images have a mask in a folder; none if what is there are no masks."""
    try:
        files = [path for path in walk(folder, home, []) if path.suffix.lower() in SUFFIXES - {".jpg", ".jpeg"}]
        stems = {unmarked(path.stem): path for path in files}
        fitting = [stems[item.image.stem] for item in labelled if item.image.stem in stems]
        if not fitting:
            return 0
        summary = summarise_mask(require_inside(fitting[0], home))
    except UserError:
        return 0
    return 0 if isinstance(summary, UserError) or len(summary.values) > MOST_VALUES else len(fitting)
