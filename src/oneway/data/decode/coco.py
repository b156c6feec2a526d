"""COCO instance annotations as label maps: polygons and run lengths in, class indices out.

Class 0 is the background, which COCO does not list; the categories follow in order of id, and one that is called
background is that class 0. Where annotations overlap, the later in the file wins; crowds are ignored regions beneath
all others.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from oneway.common.bounded import read_bounded
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.common.words import listed
from oneway.data.dataset import Bytes, class_name
from oneway.data.decode.images import MOST_PIXELS
from oneway.data.decode.outlines import outline_mask

BACKGROUND = "background"
KEYS = frozenset({"images", "annotations", "categories"})  # a JSON file with these at the top is taken for COCO's
NAMED = 5  # entries that a message names
MOST_BYTES = 2**31  # of a JSON file; that of LVIS, the largest in use, has half as many
Length = Annotated[int, Field(gt=0, le=MOST_PIXELS)]


class _Image(BaseModel):
    id: int
    file_name: str
    height: Length
    width: Length


class _Annotation(BaseModel):
    image_id: int
    category_id: int
    iscrowd: bool = False
    segmentation: Any


class _Category(BaseModel):
    id: int
    name: Annotated[str, AfterValidator(class_name)]


class _File(BaseModel):
    images: list[_Image]
    annotations: list[_Annotation]
    categories: Annotated[list[_Category], Field(min_length=1, max_length=IGNORE - 1)]


@dataclass(frozen=True)
class Region:
    """An annotation; its outline is not looked at before it is painted."""

    key: str  # where it stands in the file
    label: int  # class index, or IGNORE for a crowd
    segmentation: Any


@dataclass(frozen=True)
class CocoImage:
    """An image as COCO lists it, and what was annotated on it."""

    size: tuple[int, int]  # height and width
    regions: tuple[Region, ...]  # in the order in which they are painted


@dataclass(frozen=True)
class Coco:
    """A file of annotations."""

    path: Path
    classes: tuple[str, ...]
    images: dict[str, CocoImage]  # by file name


def is_coco(tree: object) -> bool:
    """Whether a JSON file holds instance annotations, going by its keys."""
    return isinstance(tree, dict) and tree.keys() >= KEYS


def read_json(path: Path) -> object:
    """What a JSON file holds; a UserError says why it cannot be read."""
    try:
        return json.loads(read_bounded(path, MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON ({error}).") from None


def read_coco(path: Path) -> Coco:
    """Everything but the outlines, checked; a UserError names the file and the key."""
    try:
        return _checked(path, _File.model_validate(read_json(path)))
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        raise UserError(f"{path}: {_key(detail['loc'])}{detail['msg'].removeprefix('Value error, ')}.") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}.") from None


def label_map(coco: Coco, file_name: str) -> Bytes:
    """H×W class indices, or IGNORE, of a listed image; a UserError names the file and the annotation."""
    image = coco.images[file_name]
    labels = np.zeros(image.size, dtype=np.uint8)
    for region in image.regions:
        try:
            labels[outline_mask(region.segmentation, image.size)] = region.label
        except (ValueError, TypeError, OverflowError) as error:
            raise UserError(f"{coco.path}: {region.key}.segmentation: {error}.") from None
    return labels


def _key(location: tuple[int | str, ...]) -> str:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return f"{key.removeprefix('.')}: " if key else ""


def _checked(path: Path, file: _File) -> Coco:
    """What a file says, where its entries fit each other; a ValueError names the key where they do not."""
    classes, labels = _classes(file.categories)
    sizes = {image.id: (image.height, image.width) for image in file.images}
    dangling: list[str] = []  # references to an image or a category that is not there
    regions: dict[int, list[Region]] = defaultdict(list)
    for index, annotation in enumerate(file.annotations):
        key = f"annotations[{index}]"
        if annotation.image_id not in sizes:
            dangling.append(f"{key}.image_id: no image has id {annotation.image_id}")
        if annotation.category_id not in labels:
            dangling.append(f"{key}.category_id: no category has id {annotation.category_id}")
        label = IGNORE if annotation.iscrowd else labels.get(annotation.category_id, IGNORE)
        regions[annotation.image_id].append(Region(key, label, annotation.segmentation))
    if dangling:
        raise ValueError(listed(dangling, NAMED))
    images = {}
    for index, image in enumerate(file.images):
        if image.file_name in images or len(sizes) < len(file.images):
            raise ValueError(f"images[{index}]: file name {image.file_name!r} or id {image.id} is listed twice")
        if image.height * image.width > MOST_PIXELS:
            raise ValueError(f"images[{index}]: {image.width}×{image.height} pixels are more than {MOST_PIXELS}")
        painted = sorted(regions[image.id], key=lambda region: region.label != IGNORE)  # stable: later ones stay later
        images[image.file_name] = CocoImage(sizes[image.id], tuple(painted))
    return Coco(path, classes, images)


def _classes(categories: list[_Category]) -> tuple[tuple[str, ...], dict[int, int]]:
    """Names of the classes, and the class index of each category id."""
    names, labels = [BACKGROUND], {}
    for category in sorted(categories, key=lambda category: category.id):
        background = category.name.lower() == BACKGROUND
        if category.id in labels or category.name in names[1:]:
            raise ValueError(f"categories: name {category.name!r} or id {category.id} is listed twice")
        labels[category.id] = 0 if background else len(names)
        names += [] if background else [category.name]
    return tuple(names), labels
