"""COCO: one JSON file for all images, beside them or in `annotations/`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from oneway.common.errors import UserError
from oneway.data.decode.coco import is_coco, read_coco
from oneway.data.decode.json_files import read_json
from oneway.data.folder.description import FILE, Description
from oneway.data.folder.formats.by_split import two_files
from oneway.data.folder.formats.interface import Annotations, AnnotationSource, files_with, of_one_file
from oneway.data.folder.walk import require_inside

MOST_JSON_FILES = 8  # with more of them in a folder, each belongs to a single image, and they are not COCO


def recognise(root: Path) -> Description | None:
    """Training and validation in two files, of which those of instances are preferred to others."""
    files = _files_in(root, ".")
    instances = [file for file in files if PurePosixPath(file).name.startswith("instances")]
    return two_files(root, "coco", instances or files) if len(files) > 1 else None


def find(root: Path, folder: str) -> str | None:
    """The one file of annotations in a folder, or in `annotations` within."""
    found = _files_in(root, folder)
    if len(found) > 1:
        raise UserError(
            f"{root / folder}: {', '.join(found)} all hold annotations. Say in {FILE} which belongs to which images, "
            f"as in `train: {{images: images, coco: {found[0]}}}`."
        )
    return found[0] if found else None


def _files_in(root: Path, folder: str) -> list[str]:
    files = files_with(".json", root, folder)
    if len(files) > MOST_JSON_FILES:
        return []
    return [file for file in files if is_coco(read_json(require_inside(root / file, root)))]


def read(source: AnnotationSource) -> Annotations:
    """All but the outlines is checked."""
    coco = read_coco(source.labels, source.ignore_crowds)
    listed = source.match(coco.path, coco.images)
    remarks = list(coco.remarks)
    if coco.crowds:
        objects = sum(len(image.regions) for image in coco.images.values())
        count = f"{coco.crowds} of {objects} annotations are marked as crowds"
        remarks.append(
            f"{count} and ignored, as dataset.yaml says."
            if source.ignore_crowds
            else f"{count} (iscrowd) and are labels like the others; `crowds: ignore` in dataset.yaml ignores them."
        )
    found = {image: coco.images[name] for image, name in listed.items()}
    return of_one_file(coco.path, found, coco.classes[1:], True, tuple(remarks))
