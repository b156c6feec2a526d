"""The methods and the variants of consistency by name: one row for each.

Nothing here imports PyTorch, so that the command line can list names fast; losses are imported when a method trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

from oneway.common.errors import unknown

if TYPE_CHECKING:
    from torch import nn

    from oneway.methods.interface import LossesOf

PerturbationName = Literal["ph", "tps", "phtps", "colour", "augseg", "cutmix", "boxes", "cutout", "noise"]
MIXING: frozenset[PerturbationName] = frozenset(("cutmix", "boxes"))
TeacherName = Literal["simple", "mean"]
LossName = Literal["kl", "weighted-kl", "confident", "confident-l2"]
BalanceName = Literal["none", "frequency", "dice", "ohem"]
VariantName = Literal["1w-ct", "1w-cs", "2w-c1", "1w-p2", "2w-p2"]


@dataclass(frozen=True)
class Method:
    """A training method: the random numbers and settings that it needs, and the file or function of its losses."""

    losses: LossesOf | str
    """The generator of its losses, or the name of a file in this folder with a generator `losses`."""

    perturb: tuple[PerturbationName, ...] = ()
    """Perturbations of the student's unlabelled input, in this order."""

    augment: tuple[PerturbationName, ...] = ()
    """Perturbations of half of the labelled images."""

    augment_all: bool = False
    """Whether `augment` is for all labelled images."""

    teacher: TeacherName = "simple"
    """The student itself (`simple`), or its EMA (`mean`)."""

    loss: LossName = "kl"
    """How predictions are compared: KL with soft targets, plain or weighted by the teacher's confidence; cross-entropy
    or squared distance with hard targets above a confidence."""

    students: int = 1
    views: int = 1
    """Draws of the perturbation for each unlabelled image."""

    noise: bool = False
    """Whether it draws a random number for every value of its input."""

    mixes_classes: bool = False
    """Whether it mixes images by their classes: it draws a number for every class."""

    drops_channels: bool = False
    """Whether it drops channels of the encoder's features: it draws a number for every channel."""

    needs_pairs: bool = False
    """Whether it compares projected features of two overlapping crops of each image; a projector then learns too."""

    head: Callable[[nn.Module, int], nn.Module] | None = None
    """Makes a module of its own, from the student and the number of classes: its parameters learn with the student, and
    its buffers are what the method remembers. Checkpoints keep both; the model that a run saves has neither."""

    injects: bool = False
    """Whether it pastes pieces of labelled images into unlabelled ones, and mixes these."""

    variants: bool = False
    """Whether its losses follow `Settings.variant`: which branch is perturbed and which learns (`--variant`)."""

    taught: bool = False
    """Whether it learns from clean predictions of one teacher, so that a frozen network may be that (`--teacher`)."""

    entropy: bool = False
    """Whether it minimises entropy: where `train.entropy` is above 0, unlabelled images take part even at α = 0."""

    train: Mapping[str, Any] = field(default_factory=dict)
    """Its defaults in the section `train`: they override a recipe's settings, and flags override both."""

    def __post_init__(self) -> None:
        """A misspelt choice would train another method; names of perturbations are checked when training begins."""
        for kind, name, known in (("teacher", self.teacher, TeacherName), ("loss", self.loss, LossName)):
            if name not in get_args(known):
                raise unknown(f"{kind} of a method", name, get_args(known))

    @property
    def supervised(self) -> bool:
        """Whether the unlabelled images are left out."""
        return self.losses == "supervised"

    @property
    def mixes(self) -> bool:
        """Whether it mixes unlabelled images with one another."""
        return not MIXING.isdisjoint(self.perturb) or self.mixes_classes or self.injects

    @property
    def mixes_labelled(self) -> bool:
        """Whether it mixes labelled images with one another."""
        return not MIXING.isdisjoint(self.augment)

    @property
    def segments(self) -> bool:
        """Whether it needs labels of pixels, or a network with a decoder."""
        return self.mixes_classes or self.drops_channels or self.needs_pairs or self.injects

    @property
    def of_images(self) -> bool:
        """Whether it has perturbations for images alone: points have no colours, and cannot be warped."""
        return any(name != "noise" for name in (*self.perturb, *self.augment))

    @property
    def own(self) -> bool:
        """Whether it is none of this package, but one of the user's own."""
        return not isinstance(self.losses, str)

    def generator(self) -> LossesOf:
        """The function that yields its losses."""
        if isinstance(self.losses, str):
            return import_module(f"oneway.methods.{self.losses}").losses
        return self.losses


SELF_TAUGHT: Mapping[str, Any] = {"alpha": 1.0, "confidence": 0.95, "teacher_norm": "batch", "batch_norm": "both"}
"""Defaults of FixMatch and UniMatch: the student itself is the teacher, in training mode, as in the authors' code."""

CLASSMIX: Mapping[str, Any] = {"alpha": 1.0, "confidence": 0.968, "teacher_decay": 0.99, "batch_norm": "both"}
CPS: Mapping[str, Any] = {**SELF_TAUGHT, "alpha": 1.5, "confidence": 0.0}
SLOW_TEACHER: Mapping[str, Any] = {
    "alpha": 1.0,
    "confidence": 0.95,
    "teacher_decay": 0.996,
    "teacher_warm_up": True,
    "batch_norm": "both",
}
"""Defaults of UniMatch V2, and of AugSeg on street scenes."""

CAC: Mapping[str, Any] = {"alpha": 0.1, "confidence": 0.75, "batch_norm": "both"}

consistency = partial(Method, "consistency", variants=True, taught=True)
"""A row of the table whose losses are those of `consistency.py`."""

METHODS: dict[str, Method] = {
    "supervised": Method("supervised"),
    "supervised-phtps-aug": Method("supervised", augment=("phtps",)),
    "supervised-phtps-aug-all": Method("supervised", augment=("phtps",), augment_all=True),
    "supervised-colour-aug": Method("supervised", augment=("colour",)),
    "supervised-colour-cutmix-aug": Method("supervised", augment=("colour", "cutmix")),
    "supervised-balanced": Method("supervised", train={"balance": "frequency"}),
    "simple-ph": consistency(perturb=("ph",)),
    "simple-tps": consistency(perturb=("tps",)),
    "simple-phtps": consistency(perturb=("phtps",)),
    "mt-phtps": consistency(perturb=("phtps",), teacher="mean"),
    "simple-cutmix": consistency(perturb=("cutmix",)),
    "mt-cutmix": consistency(perturb=("cutmix",), teacher="mean"),
    "mt-cutmix-l2": consistency(perturb=("cutmix",), teacher="mean", loss="confident-l2", train={"alpha": 1.0}),
    "mt-phtps-cutmix": consistency(perturb=("phtps", "cutmix"), teacher="mean", train={"alpha": 1.0}),
    "mt-colour-cutmix": consistency(
        perturb=("colour", "cutmix"), teacher="mean", loss="weighted-kl", train={"alpha": 1.0}
    ),
    "mt-colour-cutmix-drop": Method(
        "mt_colour_cutmix_drop",
        perturb=("colour", "cutmix"),
        teacher="mean",
        loss="weighted-kl",
        taught=True,
        drops_channels=True,
        train={"alpha": 1.0, "balance": "frequency"},
    ),
    "fixmatch": consistency(perturb=("colour", "boxes"), loss="confident", train=SELF_TAUGHT),
    "fixmatch-ema": Method(
        "fixmatch_ema",
        perturb=("augseg", "tps", "cutout"),
        teacher="mean",
        loss="confident",
        train={"alpha": 1.0, "confidence": 0.95, "teacher_decay": 0.999, "teacher_warm_up": True},
    ),
    "classmix": Method(
        "classmix", perturb=("colour",), teacher="mean", taught=True, mixes_classes=True, train=CLASSMIX
    ),
    "cps": Method("cps", perturb=("cutmix",), loss="confident", students=2, train=CPS),
    "unimatch": Method(
        "unimatch",
        perturb=("colour", "boxes"),
        loss="confident",
        taught=True,
        views=2,
        drops_channels=True,
        train=SELF_TAUGHT,
    ),
    "unimatch-v2": Method(
        "unimatch_v2",
        perturb=("colour", "boxes"),
        teacher="mean",
        loss="confident",
        taught=True,
        views=2,
        drops_channels=True,
        train=SLOW_TEACHER,
    ),
    "augseg": Method(
        "augseg", perturb=("augseg",), teacher="mean", loss="confident", taught=True, injects=True, train=SLOW_TEACHER
    ),
    "cac": Method("cac", perturb=("colour",), views=2, needs_pairs=True, train=CAC),
    "simple-noise": consistency(perturb=("noise",), noise=True),
    "vat-entmin": Method("vat", noise=True, entropy=True, train={"alpha": 1.0}),
}


@dataclass(frozen=True)
class Variant:
    """The two branches of D(first, second). The second always sees T(x); the first sees x, or another T'(x).

    A branch that learns is the student; one that does not is the teacher.
    """

    first_is_clean: bool
    first_learns: bool
    second_learns: bool

    @property
    def two_way(self) -> bool:
        """Whether both branches learn."""
        return self.first_learns and self.second_learns

    @property
    def views(self) -> int:
        """The number of perturbation draws for each unlabelled image."""
        return 1 if self.first_is_clean else 2


VARIANTS: dict[VariantName, Variant] = {
    "1w-ct": Variant(first_is_clean=True, first_learns=False, second_learns=True),
    "1w-cs": Variant(first_is_clean=True, first_learns=True, second_learns=False),
    "2w-c1": Variant(first_is_clean=True, first_learns=True, second_learns=True),
    "1w-p2": Variant(first_is_clean=False, first_learns=False, second_learns=True),
    "2w-p2": Variant(first_is_clean=False, first_learns=True, second_learns=True),
}
