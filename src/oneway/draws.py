"""All random numbers of an iteration, as a function of (seed, iteration).

A run has no generator state: the images, crops and perturbations of iteration i are a small table that depends on the
seed and on i alone. So a run's position is its iteration number, resuming is exact by construction, and runs on a CPU
and on a GPU have the same augmentations.

Shapes: N images. Numbers are drawn on the CPU by NumPy, whose calls cost a fraction of PyTorch's, and wrapped as
tensors. `u` is uniform in [0, 1): a number that decides whether something happens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oneway.common.streams import permuted, stream

CLASSES = 256
"""The number of values of a label: masks are uint8."""

OPERATIONS = 11
"""The number of AugSeg's intensity operations, which are in `ops.intensity`."""

NEGATIVES = 512
"""The number of cells of each image that are negatives in a contrastive loss."""

PROPORTIONS = np.linspace(0.3, 1 / 0.3, 65, dtype=np.float32)
"""Aspect ratios, height to width, of small rectangles."""

MOST_SHUFFLED = 2**20
"""The most images whose order is shuffled in memory; with more, the permutation is computed position by position."""

Table = TypeVar("Table", bound=tuple[Any, ...] | None)

PHOTOMETRIC_RANGES = {
    "brightness": (-0.25, 0.25),
    "saturation": (0.25, 2.0),
    "hue": (-0.1, 0.1),
    "contrast": (0.25, 2.0),
}
"""The ranges of the paper's uniform distributions of b, s, h and c."""


class CropDraws(NamedTuple):
    """The images of a batch, and the scale, crop and flip of each."""

    item: Tensor  # N int64, index into the store
    scale: Tensor  # N
    top: Tensor  # N, in [0, 1]: where the crop lies between the highest and the lowest possible place
    left: Tensor  # N, likewise
    flip: Tensor  # N bool


class Photometric(NamedTuple):
    """φ = (b, s, h, c, π) of the paper, at strength 1; `u` decides whether π is used at a lower strength."""

    brightness: Tensor  # N, b
    saturation: Tensor  # N, s
    hue: Tensor  # N, h, in turns (36° is 0.1)
    contrast: Tensor  # N, c
    permutation: Tensor  # N×3 int64, π
    u: Tensor  # N: the channels are permuted where it is below s_P


class Colours(NamedTuple):
    """Colour jitter of FixMatch and UniMatch at strength 1; `u` decides which of its steps an image undergoes."""

    brightness: Tensor  # N, in [−½, ½): relative change
    contrast: Tensor  # N, likewise
    saturation: Tensor  # N, likewise
    hue: Tensor  # N, in turns, in [−¼, ¼)
    blur: Tensor  # N, deviation in pixels, in [0.1, 2)
    u: Tensor  # N×3: for a change of colours, for grey, for blur


class Intensities(NamedTuple):
    """AugSeg's random intensities: one to three operations on each image, in a random order."""

    steps: Tensor  # N int64, 1 … 3: how many of the following three operations are applied
    operation: Tensor  # N×3 int64, indices into the list of operations
    strength: Tensor  # N×3, in [0, 1): the position in an operation's range


class Boxes(NamedTuple):
    """CutMix rectangles, in fractions of the image; one for each pair of images."""

    height: Tensor  # ⌊N/2⌋; the width follows from the area
    top: Tensor  # ⌊N/2⌋, in [0, 1]: between the highest and the lowest possible place
    left: Tensor  # ⌊N/2⌋, likewise
    area: Tensor | None = None  # ⌊N/2⌋, 0 where nothing is cut; None: one half, of all


class Squares(NamedTuple):
    """Squares of N images, in fractions of their sides; clipped at the border."""

    side: Tensor  # N
    y: Tensor  # N, of the centre
    x: Tensor  # N, likewise


class PerturbationDraw(NamedTuple):
    """All random numbers of the perturbation of N images."""

    photometric: Photometric
    displacements: Tensor  # N×4×2, γ in standard deviations: (x, y) of the four control points
    boxes: Boxes
    noise: Tensor  # N×…, standard normal, of the inputs' shape; empty where no perturbation asks for it
    colours: Colours
    intensities: Intensities
    small_boxes: Boxes
    squares: Squares


class ClassAndChannelDraws(NamedTuple):
    """Uniform numbers for each unlabelled image: they select the classes to mix and the channels to drop."""

    classes: Tensor  # N×256, one for each value of a label; N×0 where the method mixes no classes
    channels: Tensor  # N×K, one for each channel of the encoder's feature maps; N×0 where the method drops none
    whole: Tensor  # N, whether an image keeps all its channels


class OverlapDraws(NamedTuple):
    """Uniform numbers for methods that compare two overlapping crops of each unlabelled image (CAC)."""

    shift: Tensor  # N×2: how far the second lies below and to the right of the first, within what is possible
    places: Tensor  # N×512: cells of both crops that are negatives


class AugSegDraws(NamedTuple):
    """Random numbers of AugSeg: it pastes labelled images into N unlabelled ones, then the results into one another."""

    labelled: Squares  # cut from labelled images, with centres in [⅛, 1)
    mixed: Squares  # cut from the results
    u: Tensor  # N: the piece of a labelled image is pasted where the teacher's confidence is below u


class Draws(NamedTuple):
    """All random numbers of one iteration."""

    labelled: CropDraws
    unlabelled: CropDraws
    views: tuple[PerturbationDraw, ...]  # of the unlabelled images, one for each perturbed view of them
    augmentation: PerturbationDraw | None  # of the first labelled images, where a method asks for it
    selection: ClassAndChannelDraws | None = None  # where a method asks for any
    overlap: OverlapDraws | None = None  # likewise
    augseg: AugSegDraws | None = None  # likewise


def each_column(table: Table, function: Callable[[Tensor], Tensor]) -> Table:
    """Apply a function to each tensor of a table, or of a part of it."""
    if table is None:
        return table
    fields = [function(field) if isinstance(field, Tensor) else each_column(field, function) for field in table]
    return type(table)(*fields) if hasattr(table, "_fields") else type(table)(fields)


def columns_of(table: tuple[Any, ...]) -> Iterator[Tensor]:
    """The tensors of a table, or of a part of it, in order."""
    for field in table:
        if isinstance(field, Tensor):
            yield field
        elif field is not None:
            yield from columns_of(field)


def on_device(table: Table, device: torch.device) -> Table:
    """The table, or a part of it, on a device."""
    return each_column(table, lambda column: column.to(device))


def part(draws: Draws, rank: int, world_size: int) -> Draws:
    """The rows of process `rank` of `world_size` processes; together, the shares are the whole table.

    CutMix pairs the images of a batch's first half with those of its second; methods that augment labelled images do so
    with the first half, and pair within it. So a share is a slice of each quarter: pairs and halves stay together.
    Batches too small for that are sliced by halves, or as a whole, and their draws for pairs must not be used.
    """

    def rows(table: Table, count: int) -> Table:
        if count % world_size:
            raise ValueError(f"{count} images do not divide into shares for {world_size} processes")
        slices = next(pieces for pieces in (4, 2, 1) if count % (pieces * world_size) == 0)

        def share(column: Tensor) -> Tensor:
            pieces = max(1, slices * len(column) // max(1, count))
            length = len(column) // pieces
            column = column.reshape(pieces, length, *column.shape[1:])
            return column[:, rank * length // world_size : (rank + 1) * length // world_size].flatten(0, 1)

        return each_column(table, share)

    labelled, unlabelled = len(draws.labelled.item), len(draws.unlabelled.item)
    of_labelled = ("labelled", "augmentation")
    tables: dict[str, Any] = draws._asdict()
    return Draws(**{n: rows(table, labelled if n in of_labelled else unlabelled) for n, table in tables.items()})


@dataclass(frozen=True)
class Plan:
    """The settings of a run that its draws depend on."""

    seed: int
    labelled: tuple[int, ...]
    unlabelled: Sequence[int]  # a range, where there are millions
    batch_labelled: int
    batch_unlabelled: int  # 0 where only labelled images train
    scale: tuple[float, float]
    flip: bool
    crop: bool = True  # whether there is anything to scale, crop and flip
    noise_shape: tuple[int, ...] = (0,)
    views: int = 1  # number of perturbed views of each unlabelled image
    augmented: int = 0  # labelled images of a batch that are perturbed, the first ones
    mixes_classes: bool = False
    droppable_channels: int = 0  # channels of the feature maps, some of which are dropped for each image; 0 for none
    needs_pairs: bool = False  # whether there are two crops of each unlabelled image
    injects: bool = False  # whether pieces of labelled images are pasted into unlabelled ones


def draw(plan: Plan, iteration: int) -> Draws:
    """Draw the table of one iteration."""

    def perturbation(role: str, count: int) -> PerturbationDraw:
        return draw_perturbation(plan.seed, iteration, count, role, plan.noise_shape)

    return Draws(
        labelled=_draw_crops(plan, "labelled", plan.labelled, plan.batch_labelled, iteration),
        unlabelled=_draw_crops(plan, "unlabelled", plan.unlabelled, plan.batch_unlabelled, iteration),
        views=tuple(perturbation(_role(view), plan.batch_unlabelled) for view in range(plan.views)),
        augmentation=perturbation("labelled ", plan.augmented) if plan.augmented else None,
        selection=draw_classes_and_channels(plan, iteration) if plan.mixes_classes or plan.droppable_channels else None,
        overlap=draw_overlaps(plan, iteration) if plan.needs_pairs else None,
        augseg=draw_augseg(plan, iteration) if plan.injects else None,
    )


def _role(view: int) -> str:
    """The prefix of a view's stream; the first two are irregular and must stay, since names decide the numbers."""
    return ("", "other ")[view] if view < 2 else f"view {view} "


def draw_perturbation(
    seed: int, index: int, count: int, role: str = "", noise_shape: tuple[int, ...] = (0,)
) -> PerturbationDraw:
    """Draw number `index` of the perturbation of `count` images; each role in an iteration has numbers of its own."""
    random = stream(seed, f"{role}perturbation", index)
    # The order must never change: a new perturbation draws last, so that it does not shift the others' numbers.
    return PerturbationDraw(
        draw_photometric(random, count),
        _normal(random, count, 4, 2),
        draw_boxes(random, count // 2),
        _normal(random, count, *noise_shape),
        draw_colours(random, count),
        draw_intensities(random, count),
        draw_small_boxes(random, count // 2),
        draw_squares(random, count),
    )


def draw_photometric(random: np.random.Generator, count: int) -> Photometric:
    """Image-wide parameters from the paper's distributions."""
    u = random.random((8, count), dtype=np.float32)
    colours = {name: _between(*ends, row) for (name, ends), row in zip(PHOTOMETRIC_RANGES.items(), u, strict=False)}
    permutation = torch.from_numpy(u[4:7].argsort(axis=0).T)
    return Photometric(**colours, permutation=permutation, u=torch.from_numpy(u[7]))


def draw_colours(random: np.random.Generator, count: int) -> Colours:
    """Parameters from the ranges of FixMatch's and UniMatch's strong augmentation for segmentation."""
    u = random.random((8, count), dtype=np.float32)
    return Colours(
        brightness=_between(-0.5, 0.5, u[0]),
        contrast=_between(-0.5, 0.5, u[1]),
        saturation=_between(-0.5, 0.5, u[2]),
        hue=_between(-0.25, 0.25, u[3]),
        blur=_between(0.1, 2.0, u[4]),
        u=torch.from_numpy(u[5:].T),
    )


def draw_intensities(random: np.random.Generator, count: int) -> Intensities:
    """One to three operations for each image; numbers, operations and strengths are uniform."""
    return Intensities(
        torch.from_numpy(random.integers(1, 4, size=count)),
        torch.from_numpy(random.integers(OPERATIONS, size=(count, 3))),
        _uniform(random, count, 3),
    )


def draw_boxes(random: np.random.Generator, count: int) -> Boxes:
    """Rectangles of half the image's area, as French et al. draw them: the height is log-uniform in [½, 1]."""
    height, top, left = _uniform(random, 3, count)
    return Boxes(0.5**height, top, left)


def draw_small_boxes(random: np.random.Generator, count: int) -> Boxes:
    """UniMatch's rectangles: in half of the cases, of 2 to 40 % of the area, with aspect ratios of 0.3 to 1/0.3.

    UniMatch draws ratio and position until the rectangle lies in the image (rejection sampling). The accepted positions
    are uniform, and a ratio's probability is proportional to the positions it leaves: both are drawn directly here.
    """
    u = random.random((5, count), dtype=np.float32)
    area = _between(0.02, 0.4, u[0]).numpy()
    heights = np.sqrt(area[:, None] * PROPORTIONS)
    places = ((1 - heights).clip(0) * (1 - area[:, None] / heights).clip(0)).cumsum(axis=1)
    chosen = (places < u[1, :, None] * places[:, -1:]).sum(axis=1)
    height = np.take_along_axis(heights, chosen[:, None], axis=1)[:, 0]
    used = np.where(u[2] < 0.5, area, np.float32(0))
    return Boxes(*map(torch.from_numpy, (height, u[3], u[4], used)))


def draw_squares(random: np.random.Generator, count: int) -> Squares:
    """Cutout as FixMatch draws it: sides of up to one half, centres anywhere."""
    side, y, x = _uniform(random, 3, count)
    return Squares(side / 2, y, x)


def draw_classes_and_channels(plan: Plan, iteration: int) -> ClassAndChannelDraws:
    """The numbers of ClassMix and of dropped features, from streams of their own: no method shifts another's."""

    def uniform(purpose: str, *columns: int) -> Tensor:
        return _uniform(stream(plan.seed, purpose, iteration), plan.batch_unlabelled, *columns)

    return ClassAndChannelDraws(
        uniform("mixed classes", CLASSES if plan.mixes_classes else 0),
        uniform("dropped channels", plan.droppable_channels),
        uniform("whole features"),
    )


def draw_overlaps(plan: Plan, iteration: int) -> OverlapDraws:
    """Where second crops lie, and which cells are negatives; from a stream of their own."""
    random = stream(plan.seed, "overlapping crops", iteration)
    return OverlapDraws(_uniform(random, plan.batch_unlabelled, 2), _uniform(random, plan.batch_unlabelled, NEGATIVES))


def draw_augseg(plan: Plan, iteration: int) -> AugSegDraws:
    """Squares of one size for the whole batch, each in its own place; from a stream of their own."""
    random, count = stream(plan.seed, "injections", iteration), plan.batch_unlabelled

    def squares(a: float, b: float) -> Squares:
        side = torch.full((count,), math.sqrt(1 - random.beta(a, b)))
        y, x = _between(1 / 8, 1, random.random((2, count), dtype=np.float32))
        return Squares(side, y, x)

    return AugSegDraws(squares(8, 2), squares(4, 4), _uniform(random, count))


def batch_positions(seed: int, purpose: str, available: int, batch: int, iteration: int) -> list[int]:
    """Positions of the images of one batch, out of `available`.

    An epoch is a permutation cut into ⌊available / batch⌋ batches, the rest dropped, as the paper counts. A batch
    larger than the set takes whole permutations until it is full, so that every image occurs as often as any other,
    give or take one.
    """
    if batch == 0:
        return []
    per_epoch = max(1, available // batch)
    epoch, position = divmod(iteration, per_epoch)
    if available > MOST_SHUFFLED:
        return permuted(
            seed, f"order of {purpose}", epoch, available, range(position * batch, (position + 1) * batch)
        ).tolist()
    order = _order(seed, purpose, available, math.ceil(batch / available), epoch)
    return order[position * batch : (position + 1) * batch].tolist()


@lru_cache(maxsize=4)  # iterations of an epoch share it, and shuffling 50,000 images takes a millisecond
def _order(seed: int, purpose: str, available: int, times: int, epoch: int) -> npt.NDArray[np.int64]:
    random = stream(seed, f"order of {purpose}", epoch)
    return np.concatenate([random.permutation(available) for _ in range(times)])


def _draw_crops(plan: Plan, purpose: str, items: Sequence[int], batch: int, iteration: int) -> CropDraws:
    positions = batch_positions(plan.seed, purpose, len(items), batch, iteration)
    item = torch.from_numpy(np.array([items[position] for position in positions], dtype=np.int64))
    if not plan.crop:
        nothing = torch.zeros(batch)
        return CropDraws(item, nothing + 1, nothing, nothing, nothing.bool())
    scale, top, left, flip = _uniform(stream(plan.seed, f"jitter of {purpose}", iteration), 4, batch)
    low, high = plan.scale
    return CropDraws(
        item=item,
        scale=_between(math.log(low), math.log(high), scale.numpy()).exp(),
        top=top,
        left=left,
        flip=(flip < 0.5) & plan.flip,
    )


def _uniform(random: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(random.random(shape, dtype=np.float32))


def _normal(random: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(random.standard_normal(shape, dtype=np.float32))


def _between(low: float, high: float, u: npt.NDArray[np.float32]) -> Tensor:
    return torch.from_numpy(low + (high - low) * u)
