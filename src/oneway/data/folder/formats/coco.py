"""COCO: one JSON file for all images, beside them or in `annotations/`, with polygons and run lengths of categories.

The categories are classes in order of id. Where annotations overlap, the later in the file wins. Those marked as crowds
are labels like others, as tools that export what was painted with a brush mean it; or else ignored regions beneath all
others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, model_validator

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.common.words import listed
from oneway.data.dataset import class_name
from oneway.data.decode.json_files import read_json, read_model
from oneway.data.decode.outlines import outline_mask
from oneway.data.decode.plausible import MOST_PIXELS
from oneway.data.decode.regions import Region, Regions, is_background
from oneway.data.folder.description import FILE, Description
from oneway.data.folder.formats.interface import Annotations, AnnotationSource, files_with, of_one_file, two_files
from oneway.data.folder.walk import require_inside

KEYS = frozenset({"images", "annotations", "categories"})  # a JSON file with these at the top is taken for COCO's
MOST_JSON_FILES = 8  # with more of them in a folder, each belongs to a single image, and they are not COCO
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
    segmentation: Any = None  # where boxes were drawn


class _Category(BaseModel):
    id: int
    name: Annotated[str, AfterValidator(class_name)]
    supercategory: Any = None


class _File(BaseModel):
    images: list[_Image]
    annotations: list[_Annotation]
    categories: Annotated[list[_Category], Field(min_length=1, max_length=IGNORE - 1)]

    @model_validator(mode="after")
    def _fits_together(self) -> _File:
        files, images, categories = set[str](), set[int](), Counter(category.id for category in self.categories)
        for number, count in categories.items():
            if count > 1:
                raise ValueError(f"categories: id {number} is listed twice")
        for index, image in enumerate(self.images):
            if image.file_name in files or image.id in images:
                raise ValueError(f"images[{index}]: file name {image.file_name!r} or id {image.id} is listed twice")
            if image.height * image.width > MOST_PIXELS:
                raise ValueError(f"images[{index}]: {image.width}×{image.height} pixels are more than {MOST_PIXELS}")
            files.add(image.file_name)
            images.add(image.id)
        dangling: list[str] = []
        for index, annotation in enumerate(self.annotations):
            if annotation.image_id not in images:
                dangling.append(f"annotations[{index}].image_id: no image has id {annotation.image_id}")
            if annotation.category_id not in categories:
                dangling.append(f"annotations[{index}].category_id: no category has id {annotation.category_id}")
        if dangling:
            raise ValueError(listed(dangling, NAMED))
        return self


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
    trees = ((file, read_json(require_inside(root / file, root))) for file in files)  # one at a time in memory
    return [file for file, tree in trees if isinstance(tree, dict) and tree.keys() >= KEYS]


def read(source: AnnotationSource) -> Annotations:
    """All but the outlines is checked."""
    path = source.labels
    file = read_model(path, _File)
    names, remarks = _names(file)
    regions: dict[int, list[Region]] = defaultdict(list)
    for index, annotation in enumerate(file.annotations):
        name = None if annotation.iscrowd and source.ignore_crowds else names[annotation.category_id]
        shape = partial(outline_mask, annotation.segmentation)
        regions[annotation.image_id].append(Region(f"annotations[{index}].segmentation", name, shape))
    images = {}
    for image in file.images:
        painted = sorted(regions[image.id], key=lambda region: region.name is not None)  # stable: later ones stay later
        images[image.file_name] = Regions(path, tuple(painted), (image.height, image.width))
    if crowds := sum(annotation.iscrowd for annotation in file.annotations):
        count = f"{crowds} of {len(file.annotations)} annotations are marked as crowds"
        remarks.append(
            f"{count} and ignored, as dataset.yaml says."
            if source.ignore_crowds
            else f"{count} (iscrowd) and are labels like the others; `crowds: ignore` in dataset.yaml ignores them."
        )
    found = {image: images[name] for image, name in source.match(path, images).items()}
    classes = dict.fromkeys(name for name in names.values() if not is_background(name))
    return of_one_file(path, found, classes, True, tuple(remarks))


def _names(file: _File) -> tuple[dict[int, str], list[str]]:
    """The name of each category that is a class, by id and in order of it; and what was decided about others.

    Roboflow writes a first category that stands for all others and has no annotation: it is no class.
    """
    used = {annotation.category_id for annotation in file.annotations}
    above = {category.supercategory for category in file.categories if isinstance(category.supercategory, str)}
    names: dict[int, str] = {}
    remarks: list[str] = []
    for category in sorted(file.categories, key=lambda category: category.id):
        if category.name in above and category.id not in used and len(file.categories) > 1:
            remarks.append(f"The category {category.name!r} stands above others and has no annotation: it is no class.")
            continue
        if category.name in names.values():
            remarks.append(f"Two categories are called {category.name!r}, and are one class.")
        names[category.id] = category.name
    return names, remarks
