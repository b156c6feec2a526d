"""What folders and files of data sets are called, in lower case, the preferred names first."""

from __future__ import annotations

IMAGES = ("images", "jpegimages", "image", "imgs", "img")
PHOTOS = ("photos", "pictures", "photographs")  # where none of the former is beside the masks
MASKS = (
    *("masks", "labels", "annotations", "segmentationclass", "mask", "label", "annotation"),
    *("gt", "ground_truth", "cls"),
)
INSTANCES = ("segmentationobject",)  # masks of single objects, which are no classes
MASK_FOLDERS = frozenset((*MASKS, *INSTANCES))
TRAIN = ("train", "training")
VAL = ("val", "valid", "validation")
GOOD = ("good", "ok", "normal")  # parts without a defect, in data of inspection
UNLABELLED = ("unlabelled", "unlabeled")
TEST = ("test", "testing")

MARKERS = ("_mask", "_masks", "_label", "_labels", "_seg", "_gt")
"""What the name of a mask may have in addition to that of its image, before the suffix."""

IMAGE_MARKERS = ("_image", "_img", "_photo", "_rgb", "_sat")
"""What the name of an image may have in addition to what it shares with that of its mask."""

PREFIXES, IMAGE_PREFIXES = (tuple(f"{marker[1:]}_" for marker in markers) for markers in (MARKERS, IMAGE_MARKERS))
"""The same words, at the beginning."""
