"""Terms that every layer shares."""

from __future__ import annotations

from typing import Literal

IGNORE = 255
"""The label of a pixel that belongs to no class: it neither trains nor counts."""

COARSEST_STRIDE = 32
"""Pixels to a side of a cell of an encoder's coarsest feature map."""

Task = Literal["segmentation", "classification"]
SplitName = Literal["train", "val", "test"]
AnnotationFormat = Literal["cvat", "label-studio", "labelme", "coco", "yolo", "voc"]
"""What annotation tools import."""
SuggestBy = Literal["both", "doubt", "features"]
"""What decides which images to label next."""
LoggerName = Literal["tensorboard", "wandb", "mlflow"]
