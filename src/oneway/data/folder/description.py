"""What a `dataset.yaml` may say about a folder of images and masks; any of it can be left out.

`classes` is one of

- `[background, crack]`: masks hold the numbers 0 and 1;
- `{0: background, 255: crack}`: masks hold these numbers;
- `{road: [128, 64, 128], car: "#00008e"}`: masks are painted in these colours.

`merge: {car: [truck, van]}` makes one class of several.

`colours: [[0, 0, 0], [255, 0, 0]]` are those in which the classes are shown, `ignore: [255]` the numbers or colours
that neither train nor count. `train: {images: photos, masks: labels}` or `{images: photos, coco: instances.json}` and
likewise `val` name the folders, `unlabelled: [video]` those of images without labels.

`background: [good]` are folders of images that need no mask, since they show background alone.

`groups` are images that belong together: see `groups.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)

from oneway.common.bounded import open_regular
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.config import read_yaml
from oneway.data.dataset import Colour
from oneway.data.decode.masks import Coding, pack
from oneway.data.folder.classes import (
    Classes,
    Value,
    default_colours,
    parse_classes,
    parse_colours,
    parse_merge,
    parse_values,
)
from oneway.data.folder.groups import parse_pattern
from oneway.data.image_style import MOST_BITS

FILE = "dataset.yaml"

ANNOTATIONS = ("coco", "labelme", "yolo", "cvat", "label_studio", "supervisely", "objects")
"""The keys of a part that name annotations."""

OPTIONS = ("merge", "crowds", "unannotated", "groups", "bands", "bits", "resize_masks", "colour_tolerance")
"""Keys beside those of classes and folders."""

Folders = Annotated[tuple[str, ...], BeforeValidator(lambda one: (one,) if isinstance(one, str) else one)]
Band = Annotated[int, Field(ge=1, le=64)]
MOST_COMMENTS = 2**16  # bytes in a file of nothing but comments


class Section(BaseModel):
    """A part of a `dataset.yaml`: it does not change, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class DatasetPart(Section):
    """Where the images of a training or validation set are, and their labels; paths are below the data folder."""

    images: str
    list: str | None = None  # a file with the names of the images that have labels here; the others are without
    masks: str | None = None  # with the subfolders of `images`; the same one for `a/masks` to `a/images`; else beside
    coco: str | None = None  # a file of instance annotations, in place of masks
    labelme: str | None = None  # a folder of Labelme's JSON files, one for each image
    yolo: str | None = None  # a folder of text files with polygons; their classes are in `names` of data.yaml
    cvat: str | None = None  # CVAT's XML file of images
    label_studio: str | None = None  # the JSON file that Label Studio exports
    supervisely: str | None = None  # a folder of Supervisely's JSON files, one for each image
    objects: str | None = None  # a folder of masks that show one object each, in a folder for each image

    @model_validator(mode="after")
    def _labelled_once(self) -> DatasetPart:
        given = [key for key in ("masks", *ANNOTATIONS) if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"labels come from {given[0]} or from {given[1]}, and not from both")
        return self

    @property
    def identity(self) -> dict[str, str | None]:
        """What tells it from others; keys that were added later only where they are used, so that caches stay valid."""
        given = self.model_dump()
        return {key: given[key] for key in given if key in ("images", "masks", "coco") or given[key] is not None}

    @property
    def labels(self) -> str | None:
        """Where its masks or annotations are, unless masks lie beside their images."""
        return self.annotations[1] if self.annotations else self.masks

    @property
    def annotations(self) -> tuple[str, str] | None:
        """The format of annotations in place of masks, and where they are."""
        return next(((key, path) for key in ANNOTATIONS if (path := getattr(self, key)) is not None), None)

    @property
    def is_labelled(self) -> bool:
        """Whether it says where labels are; else they may be masks beside the images, in their folder."""
        return bool(self.masks or self.annotations)


class Description(Section):
    """How a folder is read."""

    classes: Annotated[Classes | None, PlainValidator(parse_classes)] = None
    """None until they are known: from COCO's categories, or by looking at the masks."""

    merge: Annotated[dict[str, tuple[str, ...]], PlainValidator(parse_merge)] = Field(default_factory=dict)
    """By the name of a class: those that it takes in, which are no classes of their own."""

    colours: Annotated[tuple[Colour, ...] | None, PlainValidator(parse_colours)] = None
    ignore: Annotated[tuple[Value, ...] | None, PlainValidator(parse_values)] = None
    """What stands for no class; by default 255, unless it is a class; among colours, none."""

    train: DatasetPart | None = None
    val: DatasetPart | None = None
    test: DatasetPart | None = None
    """Images that neither train nor validate: models are scored by them when asked to."""

    unlabelled: Folders = ()
    background: Folders = ()
    """Folders of images that show background alone where they have no labels."""

    crowds: Literal["label", "ignore"] = "label"
    """What annotations are that COCO marks as crowds."""

    unannotated: Literal["unlabelled", "background"] = "unlabelled"
    """What images are that annotations list, and nothing is annotated on."""

    groups: Annotated[str, AfterValidator(parse_pattern)] | None = None
    """Where images are held out: `folder`, or a pattern of names; those of a group validate together, or none does."""

    bands: tuple[Band, Band, Band] | None = None
    """Which bands of images are taken for red, green and blue, counted from 1; by default their colours."""

    bits: Annotated[int, Field(ge=9, le=MOST_BITS)] | None = None
    """How many bits are in use of images with 16 for each sample; by default all."""

    resize_masks: Literal["nearest"] | None = None
    """How masks of another size than their image, or annotations drawn at one, are given its size; else refused."""

    colour_tolerance: Annotated[int, Field(ge=0, le=64)] = 0
    """Up to which each channel of a colour in masks may differ from that of a class."""

    @model_validator(mode="after")
    def _fits_together(self) -> Description:
        if refusal := next(_refusals(self), None):
            raise ValueError(refusal)
        return self

    @property
    def parts(self) -> list[DatasetPart]:
        """The parts that there are, of training, validation and test."""
        return [part for part in (self.train, self.val, self.test) if part]

    @property
    def folders(self) -> set[str]:
        """All folders of images and of masks."""
        places = {path for part in self.parts for path in (part.images, part.masks) if path}
        return {*self.unlabelled, *self.background, *places}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes, in order of class index; empty where they are not known yet."""
        return self.classes.names if self.classes else ()

    @property
    def merged_into(self) -> dict[str, str]:
        """The classes that are merged, each with the one that takes it in."""
        return {other: name for name, others in self.merge.items() for other in others}

    @property
    def palette(self) -> tuple[Colour, ...]:
        """The colour in which each class is shown."""
        if self.classes and self.classes.coloured and not self.colours:
            return tuple(value for value in self.classes.table if isinstance(value, tuple))
        return self.colours or default_colours(self.names)

    def coding(self) -> Coding:
        """How masks are decoded, once the classes are known."""
        table, coloured = (dict(self.classes.table), self.classes.coloured) if self.classes else ({}, False)
        default = () if coloured or IGNORE in table else (IGNORE,)
        table |= dict.fromkeys(default if self.ignore is None else self.ignore, IGNORE)
        packed = {pack(value) if isinstance(value, tuple) else value: label for value, label in table.items()}
        return Coding(packed, coloured, self.names, self.colour_tolerance)


def read_description(path: Path) -> Description:
    """A checked `dataset.yaml`; a UserError names the file, the key, and the nearest known key."""
    try:
        return Description() if _is_blank(path) else Description.model_validate(read_yaml(path))
    except ValidationError as error:
        raise UserError(f"{path}: {_explain(error)}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid YAML ({error}).") from None


def _is_blank(path: Path) -> bool:
    """Whether a file holds nothing but comments."""
    try:
        with open_regular(path) as file:
            start = file.read(MOST_COMMENTS + 1)
    except (OSError, UserError):
        return False  # reading it says why
    lines = map(bytes.strip, start.splitlines())
    return len(start) <= MOST_COMMENTS and all(not line or line.startswith(b"#") for line in lines)


def _explain(error: ValidationError) -> str:
    """The first thing that is wrong, in the user's words."""
    details = error.errors(include_url=False)
    detail = min(details, key=lambda detail: detail["type"] != "extra_forbidden")  # may explain why another is missing
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        parts = [f"{part}.{name}" for part in ("train", "val", "test") for name in DatasetPart.model_fields]
        known = [*Description.model_fields, *parts]
        near = get_close_matches(key, known, n=1)
        return f"unknown key {key!r}." + (f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(known)}.")
    ways_out = {"model_type": "write {images: FOLDER, masks: FOLDER}", "tuple_type": "write [FOLDER, …]"}
    message = ways_out.get(detail["type"], detail["msg"].removeprefix("Value error, "))
    return f"{key}: {message}." if key else f"{message}."


def _refusals(description: Description) -> Iterator[str]:
    """Why keys that are valid one by one do not fit each other."""
    for key in ("val", "test"):
        if getattr(description, key) and not description.train:
            yield f"{key}: name the folders of `train` as well"
    if both := {*description.unlabelled} & {*description.background}:
        yield f"unlabelled and background: both name {sorted(both)[0]}; leave it out of one"
    kinds = [part.annotations[0] if part.annotations else "masks" for part in description.parts]
    if len({*kinds}) > 1:
        one, other, *_ = dict.fromkeys(kinds)
        yield f"train, val and test: all need {one}, or all {other}"
    if {*kinds} - {"masks"}:
        yield from _refusals_beside_annotations(description, kinds[0])
    else:
        yield from _refusals_beside_masks(description)


def _refusals_beside_annotations(description: Description, kind: str) -> Iterator[str]:
    if description.classes and not description.classes.plain:
        yield f"classes: labels come from {kind}, where classes have names; write [name, …], or leave it out"
    if description.ignore or description.colours:
        yield f"labels come from {kind}, not from masks; leave out `colours` and `ignore`"
    if description.colour_tolerance:
        yield f"labels come from {kind}, not from masks of colours; leave out `colour_tolerance`"
    if description.resize_masks and kind == "objects":
        yield "labels come from objects, whose masks have the size of their image; leave out `resize_masks`"


def _refusals_beside_masks(description: Description) -> Iterator[str]:
    if description.parts and description.unannotated == "background":
        yield (
            "unannotated: is about images that annotations list, and labels come from masks; write `background: "
            "[FOLDER, …]` for folders of images that need none, since they show background alone"
        )
    if (classes := description.classes) is None:
        return
    if description.colour_tolerance and not classes.coloured:
        yield "colour_tolerance: masks are made of numbers; leave it out"
    elif description.colour_tolerance:
        yield from _too_near(classes, description.colour_tolerance)
    if description.colours is not None and classes.coloured:
        yield "colours: leave them out; `classes` gives each its colour already"
    elif description.colours is not None and len(description.colours) != len(classes.names):
        yield f"colours: there are {len(description.colours)}, for {len(classes.names)} classes"
    for value in description.ignore or ():
        if isinstance(value, tuple) != classes.coloured:
            words = ("a number", "a colour, as [red, green, blue]")
            yield f"ignore: {value} should be {words[classes.coloured]}, as the classes are"
        elif value in classes.table:
            yield f"ignore: {value} stands for the class {classes.names[classes.table[value]]!r} already"


def _too_near(classes: Classes, tolerance: int) -> Iterator[str]:
    """Why a tolerance is too large: between two classes, a colour could be either."""
    colours = [(value, label) for value, label in classes.table.items() if isinstance(value, tuple)]
    for (one, label), (other, another) in combinations(colours, 2):
        apart = max(abs(first - second) for first, second in zip(one, other, strict=True))
        if label != another and apart <= 2 * tolerance:
            names = [f"{classes.names[index]!r} {list(colour)}" for colour, index in ((one, label), (other, another))]
            most = f"at most {(apart - 1) // 2} tells" if apart > 2 else "leave it out, which tells"
            yield f"colour_tolerance: {tolerance} reaches from {names[0]} to {names[1]}; {most} them apart"
