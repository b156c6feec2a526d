"""The formats, by the key that names them in a `dataset.yaml`; in the order in which a folder is looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oneway.data.folder.description import Description
from oneway.data.folder.formats import coco, cvat, label_studio, labelme, per_object, supervisely, yolo
from oneway.data.folder.formats.interface import Reader

READERS: dict[str, Reader] = {
    "coco": coco,
    "labelme": labelme,
    "label_studio": label_studio,
    "cvat": cvat,
    "yolo": yolo,
    "supervisely": supervisely,
    "objects": per_object,
}

Layout = Callable[[Path], Description | None]

LAYOUTS: tuple[Layout, ...] = (yolo.recognise, supervisely.recognise, per_object.recognise)
"""Of formats in which a file says, or names of folders that no other has, which images train and which validate."""

TWO_FILES: tuple[Layout, ...] = (coco.recognise, cvat.recognise)
"""Of formats that may have a file for training and one for validation; not looked at where there are masks."""
