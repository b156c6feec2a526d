"""The settings, with their defaults, ranges and help texts.

Every field is a flag (`train.iterations` is `--train.iterations`) and a key of a run's `config.yaml`. The defaults are
the paper's where it gives them; a recipe changes what its data set needs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from cyclopts import Group, Parameter
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from oneway.common.errors import unknown
from oneway.common.terms import Task
from oneway.methods import METHODS, BalanceName, VariantName


def _ascending(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError(f"the lower end {pair[0]} is above the upper end {pair[1]}")
    return pair


def _apart(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[1] - pair[0] < 0.01:
        raise ValueError(f"the second, {pair[1]}, is not at least 0.01 above the first, {pair[0]}")
    return pair


def _absolute(path: Path | None) -> Path | None:
    """An absolute path: a run is read from other folders than the one it was started in."""
    try:
        found = None if path is None else path.expanduser().absolute()
    except RuntimeError:
        raise ValueError("begins with the home folder of a user who is not known here") from None
    try:
        str(found).encode()
    except UnicodeEncodeError:
        raise ValueError("has a name that is not in UTF-8, and cannot be written down; rename it") from None
    return found


def _absolute_or_address(place: str | Path | None) -> str | Path | None:
    """An absolute path; a URL is left as it is."""
    return place if place is None or "://" in str(place) else _absolute(Path(place))


def _absolute_weights(weights: str | None) -> str | None:
    """An absolute path; `imagenet` and None are left as they are."""
    return weights if weights in (None, "imagenet") else str(_absolute(Path(weights)))


def _importable(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", name):
        raise ValueError("should be package.module:function")
    return name


def _known_method(name: str) -> str:
    if name not in METHODS:
        own = "one of your own where its file is imported: `python FILE.py train …`, or `import` in Python"
        raise ValueError(f"should be {', '.join(map(repr, METHODS))}, or {own}")
    return name


# Upper bounds are far beyond what anyone trains with: a slip of the finger is refused before it runs for ever.
Positive = Annotated[int, Field(gt=0, le=10**9)]
Iterations = Annotated[int, Field(gt=0, le=10**8)]
BatchSize = Annotated[int, Field(gt=0, le=2**16)]
Side = Annotated[int, Field(gt=0, le=2**15)]
Pixels = tuple[Side, Side]
NonNegative = Annotated[float, Field(ge=0, le=10**6, allow_inf_nan=False)]
Strength = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False)]
Scale = Annotated[float, Field(ge=1 / 64, le=64)]
Place = Annotated[float, Field(ge=-4, le=4)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
BatchNorm = Literal["clean", "both", "frozen"]
TeacherNorm = Literal["population", "batch"]
Precision = Literal["auto", "float32", "bfloat16"]


class Section(BaseModel):
    """A part of the tree. Frozen: a configuration is decided once, before anything runs."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, coerce_numbers_to_str=True)

    @field_validator("*", mode="before")
    @classmethod
    def _none_unsets(cls, value: Any, about: ValidationInfo) -> Any:
        """`none` on the command line is what `null` is in YAML: it takes back what a recipe has set."""
        optional = type(None) in get_args(cls.model_fields[about.field_name or ""].annotation)
        return None if optional and value == "none" else value


def _flags(title: str) -> Parameter:
    """A section's flags stand together in the help, in the order of the tree."""
    return Parameter(group=Group.create_ordered(title))


class Data(Section):
    """Which images."""

    name: Annotated[
        Literal["streets", "cifar10", "moons", "folder", "camvid", "cityscapes", "voc", "ade20k", "coco-stuff"],
        Parameter(show=False),
    ] = "streets"
    """The reader; chosen by the recipe."""

    path: Annotated[Path | None, AfterValidator(_absolute), Parameter(parse=False)] = None
    """The folder the data are read from (`--data`)."""

    unlabelled: Annotated[str | Path | None, AfterValidator(_absolute_or_address)] = None
    """Further images without labels: a folder with its subfolders, videos, or tar shards: `pool/{000..123}.tar`."""

    frames_every: Annotated[float, Field(ge=0.01, le=3600)] = 1.0
    """Seconds between the frames that are used of a video in `data.unlabelled`."""

    pool: Literal["auto", "always", "never"] = "auto"
    """Whether the folder `data.unlabelled` is read while training, as shards are; `auto`: if too large to decode."""

    most_broken: Fraction = 0.01
    """Share of a pool's images that may turn out unreadable before the run stops; others take their places."""

    holdout: Fraction = 0.2
    """Share of the labelled images of `folder` that validate, where it has no validation set of its own; 0 for none."""

    holdout_drive: str | None = None
    """CamVid only: the drive whose frames validate, such as 0006R0; those of all others train, in whichever split."""

    resolution: Literal["full", "half"] = "full"
    """Cityscapes only: as it comes, or at `half` the size (2×2 pixels averaged, every second label kept)."""

    reduction: Literal["auto"] | Annotated[int, Field(ge=1, le=32)] = 1
    """How many times smaller, each way, images of `folder` are read; `auto`: as their size and their masks allow."""

    coarse: Literal["none", "images", "labels"] = "none"
    """Adds the 20,000 coarsely annotated images of Cityscapes to the training set, without or with their labels."""

    cache: Annotated[Path | None, AfterValidator(_absolute)] = None
    """Where decoded images are kept between runs; by default a folder of the user's cache folder."""

    refresh: bool = False
    """Decode again what has changed or vanished since the images were last decoded."""

    skip_unreadable: bool = False
    """Leave out images that cannot be read, or whose mask cannot: up to 1 % of a split, and each of them is counted."""

    unreadable: Fraction = 0.1
    """Share of the unlabelled images that may be unreadable: they are left out and counted; past it, the run stops."""

    size: tuple[Annotated[int, Field(gt=0, le=4096)], Annotated[int, Field(gt=0, le=4096)]] = (64, 128)
    """Height and width at which `streets` is rendered."""

    images: Annotated[int, Field(gt=0, le=10**5)] = 400
    """Number of training images of `streets`."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Which points `moons` draws, and which labelled images of `folder` are held out."""

    @property
    def task(self) -> Task:
        """Whether the labels are of pixels, or of whole inputs."""
        return "classification" if self.name in ("cifar10", "moons") else "segmentation"


class Jitter(Section):
    """Standard augmentation of every training image; what comes out is called *clean*."""

    crop: Pixels | None = (448, 448)
    """Height and width of the training crops; smaller images are padded."""

    fit: bool = False
    """Make crops smaller where most labelled images are; a crop that is given stays as it is, unless this is too."""

    padding: Annotated[int, Field(ge=0, le=2**15)] = 0
    """Pixels that a crop may reach beyond each border of the scaled image."""

    beyond: Literal["grey", "mirror"] = "grey"
    """What an image continues with beyond its borders: grey without a label, or its mirror image."""

    scale: Annotated[tuple[Scale, Scale], AfterValidator(_ascending)] = (1 / 1.5, 1.5)
    """Range of the random scale, log-uniform."""

    flip: bool = True
    """Mirror half of the images."""


class Perturb(Section):
    """What the student's unlabelled input undergoes on top of the jitter."""

    photometric: Strength = 1.0
    """s_P: 0 leaves colours alone, 1 is the paper's strength."""

    geometric: Strength = 1.0
    """s_G: multiplies the displacements of the thin-plate spline; 0 is no warp."""

    deviation: Strength = 0.05
    """Standard deviation of a control point's displacement at s_G = 1, as a fraction of the crop's height."""

    control: Annotated[tuple[Place, Place], AfterValidator(_apart)] = (0.25, 0.75)
    """Where the warp's control points lie, as fractions of height and width; the authors' code has 0.75 and 1.25."""

    colour: Strength = 1.0
    """Strength of colour jitter (methods like `mt-colour-cutmix`): 1 is that of FixMatch and UniMatch."""

    noise: Strength = 0.2
    """Standard deviation of additive Gaussian noise (method `simple-noise`)."""

    adversarial_norm: NonNegative = 10.0
    """ε, the norm of virtual adversarial perturbations (method `vat-entmin`)."""


class Model(Section):
    """The network."""

    name: Literal["swiftnet", "deeplabv2", "deeplabv3plus", "vit", "wrn-28-2", "mlp"] = "swiftnet"
    """SwiftNet, DeepLab and `vit` segment images, WRN-28-2 classifies them, the perceptron is for points in a plane."""

    backbone: str | None = None
    """Encoder, by its name in timm; by default resnet18 for SwiftNet, DINOv2's ViT-S for `vit`; DeepLab has ResNets."""

    width: Annotated[float, Field(ge=0.125, le=1)] = 1.0
    """Fraction of a ResNet's channels behind the stem, and of its decoder's; 0.5 trains on a laptop."""

    factory: Annotated[str | None, AfterValidator(_importable)] = None
    """A network of your own instead: `package.module:function`, called with the number of classes."""

    weights: Annotated[str | None, AfterValidator(_absolute_weights)] = None
    """Initial weights: `imagenet` for the encoder, fetched once; a .safetensors or .pth file; a run; or `none`."""


class Optimiser(Section):
    """The optimiser, and the learning rate over time."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    """Adam; with decoupled weight decay (`adamw`); or stochastic gradient descent with momentum."""

    learning_rate: Rate = 4e-4
    """Learning rate of randomly initialised parameters."""

    learning_rate_pretrained: Rate = 1e-4
    """Learning rate of parameters that came with `model.weights`."""

    weight_decay: NonNegative = 1e-4
    """L2 regularisation of randomly initialised parameters."""

    weight_decay_pretrained: NonNegative = 2.5e-5
    """L2 regularisation of parameters that came with `model.weights`."""

    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor of the learning rate from each block of a `vit` to the one before it; 1 is the same rate for all."""

    betas: tuple[Fraction, Fraction] = (0.9, 0.99)
    """Adam's moment decays."""

    momentum: Fraction = 0.9
    """Momentum of stochastic gradient descent."""

    nesterov: bool = True
    """Nesterov's momentum for stochastic gradient descent."""

    schedule: Literal["quarter-cosine", "polynomial", "steps", "constant"] = "quarter-cosine"
    """How the learning rate falls over the run."""


class Train(Section):
    """The loop."""

    iterations: Iterations | None = None
    """Number of optimiser steps; wins over `train.epochs`."""

    epochs: Annotated[float, Field(gt=0, le=10**6, allow_inf_nan=False)] = 100.0
    """Passes over the labelled images, as the paper counts them: one is ⌊labelled / batch⌋ iterations."""

    batch_labelled: BatchSize = 8
    """B_l, labelled images per iteration."""

    batch_unlabelled: BatchSize = 8
    """B_u, unlabelled images per iteration."""

    alpha: NonNegative = 0.5
    """α, the weight of the consistency loss; by default the method's own if it has one, else the recipe's."""

    consistency_from: Fraction = 0.0
    """Fraction of the run before which α is zero: a warm-up on the labels alone."""

    confidence: Fraction = 0.97
    """Teacher's confidence above which a pixel counts in losses with hard targets; most such methods bring theirs."""

    entropy: NonNegative = 1.0
    """Weight of entropy minimisation (method `vat-entmin`)."""

    balance: BalanceName = "none"
    """What helps rare classes in the loss of labelled images: weights by `frequency`, `dice` besides, or `ohem`."""

    teacher_decay: Fraction = 0.99
    """Decay of the mean teacher's moving average (methods `mt-…` and others with such a teacher)."""

    teacher_warm_up: bool = False
    """Begin that average as a plain mean of the first students: decay 1 − 1/t up to `train.teacher_decay`."""

    batch_norm: BatchNorm = "clean"
    """Which inputs of the student update the running statistics: clean ones, `both`, or none (`frozen`)."""

    teacher_norm: TeacherNorm = "population"
    """Which statistics a simple teacher normalises with: the running ones, or those of the `batch` that it sees."""

    validate_every: Positive | None = None
    """Iterations between validations; by default a tenth of the run. The last iteration is always validated."""

    checkpoint_every: Positive | None = None
    """Iterations between checkpoints; by default as often as validation."""

    log_every: Positive = 10
    """Iterations between lines of `metrics.jsonl`."""

    most_skipped: Positive = 10
    """Steps in a row that may be skipped, because a loss or gradient is not finite, before the run stops."""

    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, …"""

    engine: Literal["auto", "plain"] = "auto"
    """How a GPU computes a step: fused kernels in a captured CUDA graph, or `plain` PyTorch, the reference."""

    precision: Precision = "auto"
    """Precision of activations: `auto` is bfloat16 on a GPU, float32 on a CPU. Weights, losses, norms: float32."""

    def total_iterations(self, labelled: int) -> int:
        """The number of iterations of a run; an epoch has ⌊|D_l| / B_l⌋ iterations, and at least one."""
        if self.iterations is not None:
            return self.iterations
        return max(1, round(self.epochs * max(1, labelled // self.batch_labelled)))


class Config(Section):
    """Everything that decides a run."""

    recipe: Annotated[str, Parameter(parse=False)] = "none"
    """The recipe this configuration started from."""

    method: Annotated[
        str,
        AfterValidator(_known_method),
        Parameter(help=f"How images teach: {', '.join(METHODS)}.", completer=lambda _: [*METHODS]),
    ] = "simple-phtps"
    """How images teach, by the name of a method."""

    variant: VariantName = "1w-ct"
    """Which branch is perturbed and where gradients flow."""

    teacher: Annotated[Path | None, AfterValidator(_absolute)] = None
    """An ended run whose model teaches, and learns nothing itself: a large network, say, that teaches a small one."""

    labels: str = "1/8"
    """Labelled images: a fraction (`1/8`), a number (`45`), `all`, or a file that lists one image per line."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Decides the labelled subset, the initial weights and every random draw."""

    data: Annotated[Data, _flags("Data")] = Data()
    jitter: Annotated[Jitter, _flags("Jitter: scale, crop and flip of every training image")] = Jitter()
    perturb: Annotated[Perturb, _flags("Perturbation of the student's unlabelled input")] = Perturb()
    model: Annotated[Model, _flags("Model")] = Model()
    optimiser: Annotated[Optimiser, _flags("Optimiser")] = Optimiser()
    train: Annotated[Train, _flags("Training")] = Train()

    def to_yaml(self) -> str:
        """The resolved tree, as kept in a run folder."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)

    def changed(self, **changes: Any) -> Config:
        """A copy with other values; a dict changes single settings of a section.

        Names are checked here, values when a run begins: between two changes they need not fit together.
        """
        known = {*type(self).model_fields, *self.flat()}
        if surplus := sorted(names_of(changes) - known):
            raise unknown("setting", surplus[0], sorted(known))
        return self.model_copy(
            update={
                name: getattr(self, name).model_copy(update=value) if isinstance(value, dict) else value
                for name, value in changes.items()
            }
        )

    def flat(self) -> dict[str, Any]:
        """Dotted keys and plain values, for comparing two configurations."""
        return _flat(self.model_dump(mode="json"))


def names_of(changes: dict[str, Any]) -> set[str]:
    """`setting`, `section` and `section.setting` of changes; deeper there are none, whatever a file holds."""
    sections = {key: value for key, value in changes.items() if isinstance(value, dict)}
    return {*changes, *(f"{section}.{key}" for section, settings in sections.items() for key in settings)}


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
