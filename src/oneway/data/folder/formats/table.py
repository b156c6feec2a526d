"""The formats, by the key that names them in a `dataset.yaml`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oneway.data.folder.description import Description
from oneway.data.folder.formats import coco, cvat, label_studio, labelme, per_object, supervisely, yolo
from oneway.data.folder.formats.interface import Annotations, AnnotationSource

READERS: dict[str, Callable[[AnnotationSource], Annotations]] = {
    "coco": coco.read,
    "labelme": labelme.read,
    "label_studio": label_studio.read,
    "cvat": cvat.read,
    "yolo": yolo.read,
    "supervisely": supervisely.read,
    "objects": per_object.read,
}
"""What is annotated on images; a UserError names the file, and the place in it."""

FINDERS: dict[str, Callable[[Path, str], str | None]] = {
    "coco": coco.find,
    "labelme": labelme.find,
    "label_studio": label_studio.find,
    "cvat": cvat.find,
    "yolo": yolo.find,
}
"""Where annotations of a folder's images are, below the data folder, or None; in the order in which they are sought."""

Layout = Callable[[Path], Description | None]

LAYOUTS: tuple[Layout, ...] = (yolo.recognise, supervisely.recognise, per_object.recognise)
"""Of formats in which a file says, or names of folders that no other has, which images train and which validate."""

TWO_FILES: tuple[Layout, ...] = (coco.recognise, cvat.recognise)
"""Of formats that may have a file for training and one for validation; not looked at where there are masks."""
