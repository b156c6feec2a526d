"""What folders of data sets are called, in lower case, the preferred names first."""

from __future__ import annotations

IMAGES = ("images", "jpegimages", "image", "imgs", "img")
MASKS = (
    *("masks", "labels", "annotations", "segmentationclass", "mask", "label", "annotation"),
    *("gt", "ground_truth", "cls"),
)
INSTANCES = ("segmentationobject",)  # masks of single objects, which are no classes
MASK_FOLDERS = frozenset((*MASKS, *INSTANCES))
TRAIN = ("train", "training")
VAL = ("val", "valid", "validation")
UNLABELLED = ("unlabelled", "unlabeled")
TEST = ("test", "testing")
