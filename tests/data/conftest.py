"""A data set for a test to change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from data.decoded import photograph, write_set


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Five training images, three with masks, and two to validate on; the cache goes beside them."""
    return write_set(tmp_path / "photos")


@pytest.fixture
def outlines(tmp_path) -> dict[str, Any]:
    """What is in labels.json, which holds the outlines of the images in the folder `outlined`."""
    root = tmp_path / "outlined"
    (root / "images").mkdir(parents=True)
    tree = {
        "images": [{"id": n, "file_name": f"{n}.png", "height": 20, "width": 30} for n in (0, 3, 6)],
        "categories": [{"id": 1, "name": "road"}],
        "annotations": [
            {"image_id": n, "category_id": 1, "segmentation": [[0, 0, 9, 0, 9, 9, 0, 9]]} for n in (0, 3, 6)
        ],
    }
    for n in (0, 3, 6):
        photograph(root / "images" / f"{n}.png", n)
    (root / "labels.json").write_text(json.dumps(tree))
    (root / "dataset.yaml").write_text(json.dumps({"train": {"images": "images", "coco": "labels.json"}}))
    return tree
