"""COCO instance annotations: polygons and run lengths of categories.

Class 0 is the background, which COCO does not list; the categories follow in order of id, and one that is called
background is that class 0. Where annotations overlap, the later in the file wins. Those marked as crowds are labels
like others, as tools that export what was painted with a brush mean it; or else ignored regions beneath all others.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.common.words import listed
from oneway.data.dataset import class_name
from oneway.data.decode.images import MOST_PIXELS
from oneway.data.decode.json_files import read_model
from oneway.data.decode.outlines import outline_mask
from oneway.data.decode.regions import BACKGROUND, Region, Regions, is_background

KEYS = frozenset({"images", "annotations", "categories"})  # a JSON file with these at the top is taken for COCO's
NAMED = 5  # entries that a message names
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
    supercategory: Any = None


class _File(BaseModel):
    images: list[_Image]
    annotations: list[_Annotation]
    categories: Annotated[list[_Category], Field(min_length=1, max_length=IGNORE - 1)]


@dataclass(frozen=True)
class Coco:
    """A file of annotations."""

    path: Path
    classes: tuple[str, ...]
    images: dict[str, Regions]  # by file name
    crowds: int = 0  # how many annotations are marked as such
    remarks: tuple[str, ...] = ()  # what was decided about the categories


def is_coco(tree: object) -> bool:
    """Whether a JSON file holds instance annotations, going by its keys."""
    return isinstance(tree, dict) and tree.keys() >= KEYS


def read_coco(path: Path, ignore_crowds: bool = False) -> Coco:
    """Everything but the outlines, checked; a UserError names the file and the key."""
    file = read_model(path, _File)
    try:
        return _checked(path, file, ignore_crowds)
    except ValueError as error:
        raise UserError(f"{path}: {error}.") from None


def _checked(path: Path, file: _File, ignore_crowds: bool) -> Coco:
    """What a file says, where its entries fit each other; a ValueError names the key where they do not."""
    names, remarks = _names(file)
    sizes = {image.id: (image.height, image.width) for image in file.images}
    dangling: list[str] = []  # references to an image or a category that is not there
    regions: dict[int, list[Region]] = defaultdict(list)
    for index, annotation in enumerate(file.annotations):
        key = f"annotations[{index}]"
        if annotation.image_id not in sizes:
            dangling.append(f"{key}.image_id: no image has id {annotation.image_id}")
        if annotation.category_id not in names:
            dangling.append(f"{key}.category_id: no category has id {annotation.category_id}")
        name = None if annotation.iscrowd and ignore_crowds else names.get(annotation.category_id)
        shape = partial(outline_mask, annotation.segmentation)
        regions[annotation.image_id].append(Region(f"{key}.segmentation", name, shape))
    if dangling:
        raise ValueError(listed(dangling, NAMED))
    images = {}
    for index, image in enumerate(file.images):
        if image.file_name in images or len(sizes) < len(file.images):
            raise ValueError(f"images[{index}]: file name {image.file_name!r} or id {image.id} is listed twice")
        if image.height * image.width > MOST_PIXELS:
            raise ValueError(f"images[{index}]: {image.width}×{image.height} pixels are more than {MOST_PIXELS}")
        painted = sorted(regions[image.id], key=lambda region: region.name is not None)  # stable: later ones stay later
        images[image.file_name] = Regions(path, tuple(painted), sizes[image.id])
    classes = (BACKGROUND, *dict.fromkeys(name for name in names.values() if not is_background(name)))
    return Coco(path, classes, images, sum(annotation.iscrowd for annotation in file.annotations), tuple(remarks))


def _names(file: _File) -> tuple[dict[int, str], list[str]]:
    """The name of each category that is a class, by id and in order of it; and what was decided about others.

    Roboflow writes a first category that stands for all others and has no annotation: it is no class.
    """
    used = {annotation.category_id for annotation in file.annotations}
    above = {category.supercategory for category in file.categories if isinstance(category.supercategory, str)}
    names: dict[int, str] = {}
    remarks: list[str] = []
    for category in sorted(file.categories, key=lambda category: category.id):
        if category.id in names:
            raise ValueError(f"categories: id {category.id} is listed twice")
        if category.name in above and category.id not in used and len(file.categories) > 1:
            remarks.append(f"The category {category.name!r} stands above others and has no annotation: it is no class.")
            continue
        if category.name in names.values():
            remarks.append(f"Two categories are called {category.name!r}, and are one class.")
        names[category.id] = category.name
    return names, remarks
