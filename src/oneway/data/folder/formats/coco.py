"""COCO: one JSON file for all images, beside them or in `annotations/`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath

from oneway.common.errors import UserError
from oneway.data.decode.coco import is_coco, read_coco, read_json
from oneway.data.decode.regions import Regions
from oneway.data.folder.description import FILE, Description
from oneway.data.folder.formats.by_split import two_files
from oneway.data.folder.formats.interface import Annotations, Source
from oneway.data.folder.walk import choose_folder, entries_of, require_inside

TITLE = "COCO"
MOST_JSON_FILES = 8  # with more of them in a folder, each belongs to a single image, and they are not COCO


def recognise(root: Path) -> Description | None:
    """Training and validation in two files, of which those of instances are preferred to others."""
    files = files_in(root, ".")
    instances = [file for file in files if PurePosixPath(file).name.startswith("instances")]
    return two_files(root, "coco", instances or files) if len(files) > 1 else None


def find(root: Path, folder: str) -> str | None:
    """The one file of annotations in a folder, or in `annotations` within."""
    found = files_in(root, folder)
    if len(found) > 1:
        raise UserError(
            f"{root / folder}: {', '.join(found)} all hold annotations. Say in {FILE} which belongs to which images, "
            f"as in `train: {{images: images, coco: {found[0]}}}`."
        )
    return found[0] if found else None


def files_in(root: Path, folder: str) -> list[str]:
    """All such files there."""
    folders = [folder, *filter(None, [choose_folder(root, folder, ("annotations",))])]
    files = [
        PurePosixPath(place, entry.name).as_posix()
        for place in folders
        for entry in entries_of(root / place)
        if entry.name.lower().endswith(".json") and (root / place / entry.name).is_file()
    ]
    if len(files) > MOST_JSON_FILES:
        return []
    return [file for file in files if is_coco(read_json(require_inside(root / file, root)))]


def read(source: Source) -> Annotations:
    """All but the outlines is checked."""
    coco = read_coco(source.labels, source.ignore_crowds)
    listed = source.match(coco.path, coco.images)
    empty = frozenset(image for image, name in listed.items() if not coco.images[name].regions)
    remarks = list(coco.remarks)
    if coco.crowds:
        objects = sum(len(image.regions) for image in coco.images.values())
        count = f"{coco.crowds} of {objects} annotations are marked as crowds"
        remarks.append(
            f"{count} and ignored, as dataset.yaml says."
            if source.ignore_crowds
            else f"{count} (iscrowd) and are labels like the others; `crowds: ignore` in dataset.yaml ignores them."
        )
    regions = partial(_regions, {image: coco.images[name] for image, name in listed.items()})
    return Annotations(coco.classes[1:], dict.fromkeys(listed, coco.path), empty, regions, remarks=tuple(remarks))


def _regions(images: Mapping[Path, Regions], image: Path) -> Regions:
    return images[image]
