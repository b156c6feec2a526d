"""The formats, by the key that names them in a `dataset.yaml`; in the order in which a folder is looked at."""

from __future__ import annotations

from oneway.data.folder.formats import coco
from oneway.data.folder.formats.interface import Reader

READERS: dict[str, Reader] = {
    "coco": coco,
}
