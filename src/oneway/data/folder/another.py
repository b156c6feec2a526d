"""The data set that a user must have meant: a folder above or below the one that was named."""

from __future__ import annotations

from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.run_files import is_output
from oneway.common.words import listed
from oneway.data.folder.description import FILE, DatasetPart
from oneway.data.folder.layout import read_layout
from oneway.data.folder.names import IMAGES, MASK_FOLDERS, TEST, TRAIN, UNLABELLED, VAL
from oneway.data.folder.walk import MOST_BELOW, folders_in, images_in


def name_another(root: Path) -> str:
    """A sentence that names the data set which the user must have meant, one folder above or below; or nothing."""
    if above := _above(root):
        return f"It is part of {above}, which looks like a data set: name that folder."
    folders = (root / name for name in folders_in(root, MOST_BELOW))
    below = [path for path in folders if not is_output(path) and _labelled_parts(path)]
    if len(below) > 1:
        return (
            f"{listed(below)} look like data sets: name one of them. Where their masks mean the same, "
            f"`train: {{images: ., masks: .}}` in {root / FILE} reads all, and `classes` there names what they hold."
        )
    if below and (file := _annotations_alone(below[0])):
        return f"{file} holds annotations, and no image lies beside it: move it into {root}, beside the images."
    return f"{below[0]} looks like a data set: name that folder." if below else ""


def _annotations_alone(folder: Path) -> Path | None:
    """The file of annotations in a folder without images, as a tool's export without images is unpacked."""
    annotated = (folder / part.annotations[1] for part in _labelled_parts(folder) if part.annotations)
    file = next(annotated, folder)
    return file if file.is_file() and not images_in(folder, folder, []) else None


def _above(root: Path) -> Path | None:
    """The farthest folder, of the two above, that is a data set some of whose images or masks are in this one."""
    found, above, inside = None, root, root.resolve()
    for _ in range(2):
        called = above.resolve().name.lower()
        above = above.parent if above.name not in ("", "..") else above / ".."
        # Others may have anything above them, which would take long to look at.
        if called in (*IMAGES, *MASK_FOLDERS, *TRAIN, *VAL, *TEST, *UNLABELLED) or (above / FILE).is_file():
            places = [place for part in _labelled_parts(above) for place in (part.images, part.labels) if place]
            if any((above / place).resolve().is_relative_to(inside) for place in places):
                found = above
    return found


def _labelled_parts(root: Path) -> list[DatasetPart]:
    """What has labels in a folder: training and validation images, or nothing."""
    try:
        return [part for part in read_layout(root).parts if part.is_labelled]
    except UserError:
        return []
