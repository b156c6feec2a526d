"""What every reader returns: a listing of files, or decoded samples.

Shapes: N inputs with P pixels in all; an image has H×W of them.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oneway.common.terms import SplitName, Task
from oneway.common.words import composed
from oneway.data.image_style import COLOURS, ImageStyle

if TYPE_CHECKING:
    from oneway.data.mask_style import MaskStyle
    from oneway.data.pool.pool import Pool
    from oneway.engine.store import FlatArray

LONGEST_NAME = 200  # characters of a class name
SHORT_SIDE = 512
"""Pixels that the shorter side of a large image keeps where it is read smaller (`data.reduction`): crops of a few
hundred show objects with what surrounds them."""

Bytes = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]


def class_name(text: str) -> str:
    """Return the text, composed and without blanks around it, if it can be the name of a class.

    Raises:
        ValueError: Tables, pages and model files cannot have it; says why.
    """
    text = composed(text.strip())
    if not text:
        raise ValueError("a class has a blank name; give it another")
    if not text.isprintable():  # a terminal would take it for a command
        raise ValueError(f"the class name {text!r:.80} has characters that cannot be shown; rename the class")
    if len(text) > LONGEST_NAME:
        raise ValueError(f"the class name {text!r:.40}… has {len(text)} characters; {LONGEST_NAME} are the most")
    return text


def factor_of(size: tuple[int, int], most: int, least_side: int = SHORT_SIDE) -> int:
    """How many times smaller, each way, an image of some height and width is read, so that `least_side` remains."""
    return max(1, min(most, min(size) // least_side))


@dataclass(frozen=True)
class Item:
    """An image on disk, not yet decoded."""

    name: str  # its path below the data folder, with forward slashes; no two items share one
    image: Path
    mask: Path | None = None  # the file that holds its labels; None for an unlabelled image
    further: tuple[Path, ...] = ()  # files that hold more of its labels
    predicted: bool = False  # whether its mask is as `oneway predict` wrote it, and no program has saved it since
    background: bool = False  # whether it is without a mask since it shows background alone, as a description says

    @property
    def labelled(self) -> bool:
        """Whether it is known what its pixels show."""
        return self.mask is not None or self.background


def in_order(items: Iterable[Item]) -> tuple[Item, ...]:
    """The items: those with labels first, each kind in order of name."""
    return tuple(sorted(items, key=lambda item: (not item.labelled, item.name)))


@dataclass(frozen=True)
class Listing:
    """A data set on disk: the files of each split, and what their labels mean. Nothing is decoded yet."""

    root: Path
    classes: tuple[str, ...]
    colours: tuple[Colour, ...]
    train: tuple[Item, ...]  # those with labels first, each kind in order of name
    val: tuple[Item, ...]
    read_labels: Callable[[Item], Bytes]
    """H×W class indices, or IGNORE, of an item with a mask; a UserError names the file, the value and the way out."""

    test: tuple[Item, ...] = ()  # a further split with labels, where the set has one
    reduction: int = 1  # 2 for half resolution: images averaged over 2×2 pixels, labels of every second pixel
    least_side: int = 1  # pixels that the shorter side of an image keeps: smaller ones are reduced less
    remarks: tuple[str, ...] = ()  # what was decided for the user, to be said before training
    warnings: tuple[tuple[str, str], ...] = ()  # what may well be wrong with its files as a whole, by headings
    label_coding: str = ""
    """Identifies how labels are read from masks: with another text here, decoded labels cannot be reused."""

    selection: Mapping[SplitName, Sequence[object]] = field(default_factory=dict)
    """Folders and settings that decided which files are in a split; with others, it is another split."""

    recipe: str = "folder"  # with which `oneway check` lists the same files
    unlabelled: Path | str | None = None  # another folder, whose images are among those of training; or a pool
    masks: MaskStyle | None = None  # how its masks are stored; None where labels are in no masks
    image_style: ImageStyle = COLOURS  # what of its images is seen
    bare: frozenset[str] = frozenset()  # names of images that annotations list, and on which nothing is annotated
    group_of: Callable[[str], str] | None = None  # by the name of an item; None where nobody has said
    read_as: str = ""
    """How values that nothing names were taken for classes of a run; empty where there is nothing to say."""

    def factor(self, size: tuple[int, int]) -> int:
        """How many times smaller, each way, an image of this height and width is read."""
        return factor_of(size, self.reduction, self.least_side)

    @property
    def splits(self) -> dict[SplitName, tuple[Item, ...]]:
        """The items of each split, by its name."""
        return {"train": self.train, "val": self.val, "test": self.test}

    @property
    def items(self) -> tuple[Item, ...]:
        """The items of all splits."""
        return (*self.train, *self.val, *self.test)

    @property
    def check_command(self) -> str:
        """The command that checks these files."""
        recipe = () if self.recipe == "folder" else ("--recipe", self.recipe)
        unlabelled = () if self.unlabelled is None else ("--unlabelled", str(self.unlabelled))
        return shlex.join(("oneway", "check", str(self.root), *recipe, *unlabelled))


class Known(NamedTuple):
    """What was decided about a folder when a run began; it holds as long as the folder does not say otherwise."""

    validating: Collection[str] = ()
    """Names of the images that were held out."""

    classes: tuple[str, ...] = ()
    """Names, in order of class index; for labels in which some of them may not occur."""

    masks: MaskStyle | None = None
    """What stands for each class in masks, where that is known."""


NO_RUN = Known()


class PoolRecord(NamedTuple):
    """What identifies a pool: ten million names would be too many to keep."""

    images: int
    digest: str  # of names and sizes, in their order


@dataclass(frozen=True)
class Samples:
    """N inputs, decoded, of any sizes; the first of them have labels."""

    names: tuple[str, ...]
    sizes: npt.NDArray[np.int64]  # N×2, height and width
    pixels: FlatArray  # P×3 uint8 in RGB, image after image, row after row; or P×2 float32: points, a pixel each
    labels: FlatArray  # of the first inputs, uint8, class indices or IGNORE: one for each pixel, or one for each input
    labelled: int  # how many inputs have labels
    dense: bool  # whether pixels have labels, or whole inputs
    content: str  # a digest of the data
    pool: Pool | None = None  # further images without labels, whose numbers follow on those of the others
    groups: tuple[str, ...] = ()  # of each input: which others it belongs to; empty where nobody has said

    def __len__(self) -> int:
        return len(self.names)

    @property
    def task(self) -> Task:
        """What the labels are for."""
        return "segmentation" if self.dense else "classification"

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """N: where each input's pixels begin."""
        areas = self.sizes.prod(axis=1)
        return np.cumsum(areas) - areas

    @property
    def pool_record(self) -> PoolRecord | None:
        """What identifies the pool; None without one."""
        return None if self.pool is None else self.pool.record

    def name(self, number: int) -> str:
        """The name of an input, or of an image of the pool."""
        if number < len(self) or self.pool is None:
            return self.names[number]
        return self.pool.name(number - len(self))

    def image(self, index: int) -> npt.NDArray[Any]:
        """H×W×3."""
        return self._part(self.pixels, index)

    def label_map(self, index: int) -> Bytes:
        """H×W, of an input whose pixels have labels."""
        return self._part(self.labels, index)[..., 0]

    def _part(self, row: FlatArray, index: int) -> npt.NDArray[Any]:
        (height, width), start = self.sizes[index], self.starts[index]
        return row[start : start + height * width].reshape(height, width, -1)

    @classmethod
    def stacked(cls, names: tuple[str, ...], images: npt.NDArray[Any], labels: Bytes) -> Samples:
        """N×H×W×3 images of one size, or N×2 points, all labelled."""
        height, width = images.shape[1:3] if images.ndim == 4 else (1, 1)
        sizes = np.tile(np.array((height, width), dtype=np.int64), (len(names), 1))
        digest = hashlib.blake2b(np.ascontiguousarray(images).data, digest_size=16)
        digest.update(labels.tobytes())
        pixels = images.reshape(-1, images.shape[-1])
        return cls(names, sizes, pixels, labels.reshape(-1), len(names), labels.ndim > 1, digest.hexdigest())


NOTHING = Samples((), np.zeros((0, 2), np.int64), np.zeros((0, 3), np.uint8), np.zeros(0, np.uint8), 0, True, "")
"""No images: those of a validation set where all that is labelled trains."""


@dataclass(frozen=True)
class Dataset:
    """What the labels mean, and how to read the samples of a split; nothing is read until `read` is called."""

    classes: tuple[str, ...]
    colours: tuple[Colour, ...]
    read: Callable[[SplitName], Samples]
    review: Callable[[], list[str]] = list
    """Says what is suspicious about the training and validation data, line by line; raises a UserError for errors."""

    masks: MaskStyle | None = None
    """As in a listing."""

    paths: Mapping[str, Path] = field(default_factory=dict)
    """The file of each training image, by the image's name; empty where images are no files."""

    digests: Callable[[SplitName], Mapping[str, str]] = lambda split: {}
    """A digest of each image's pixels in a split, by the image's name; empty where images are no files."""

    shown: Callable[[], Mapping[str, Collection[int]]] = dict
    """The classes that the labels of each training image show, by its name; empty where images are no files."""

    image_style: ImageStyle = COLOURS
    """As in a listing."""

    reduction: int = 1
    """As in a listing."""

    read_as: str = ""
    """As in a listing."""

    predicted: frozenset[str] = frozenset()
    """Names of the images whose masks are predictions."""
