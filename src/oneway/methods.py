"""The names a user chooses from: methods and consistency variants, each a row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MethodName = Literal[
    "supervised",
    "supervised-phtps-aug",
    "simple-ph",
    "simple-tps",
    "simple-phtps",
    "mt-phtps",
    "simple-cutmix",
    "mt-cutmix",
    "mt-cutmix-l2",
    "simple-noise",
    "vat-entmin",
]
VariantName = Literal["1w-ct", "1w-cs", "2w-c1", "1w-p2", "2w-p2"]
PerturbationName = Literal["ph", "tps", "phtps", "cutmix", "noise", "vat"]
LossName = Literal["kl", "confident-l2"]
SplitName = Literal["train", "val", "test"]


@dataclass(frozen=True)
class Traits:
    """What a perturbation needs, as far as a configuration has to know; what it does is in `perturb`."""

    of_images: bool = True
    """Points have no colours to change, nor neighbours to be warped to."""

    mixes: bool = False
    """It mixes the images of a batch with one another."""

    noise: bool = False
    """It draws a number for every number of its input."""


PERTURBATION_TRAITS: dict[PerturbationName, Traits] = {
    "ph": Traits(),
    "tps": Traits(),
    "phtps": Traits(),
    "cutmix": Traits(mixes=True),
    "noise": Traits(of_images=False, noise=True),
    "vat": Traits(of_images=False, noise=True),
}


@dataclass(frozen=True)
class Method:
    """How images teach: perturbation, teacher and loss of the unlabelled ones, augmentation of the labelled ones."""

    perturbation: PerturbationName | None
    teacher: Literal["simple", "mean"] = "simple"
    loss: LossName = "kl"
    entropy: bool = False
    augmentation: PerturbationName | None = None
    alpha: float | None = None
    """Weight of the consistency loss, where the method brings its own and no recipe decides."""

    @property
    def supervised(self) -> bool:
        """Whether the unlabelled images are left out."""
        return self.perturbation is None

    @property
    def traits(self) -> list[Traits]:
        """Of everything that it perturbs with."""
        return [PERTURBATION_TRAITS[name] for name in (self.perturbation, self.augmentation) if name is not None]


METHODS: dict[MethodName, Method] = {
    "supervised": Method(perturbation=None),
    "supervised-phtps-aug": Method(perturbation=None, augmentation="phtps"),
    "simple-ph": Method(perturbation="ph"),
    "simple-tps": Method(perturbation="tps"),
    "simple-phtps": Method(perturbation="phtps"),
    "mt-phtps": Method(perturbation="phtps", teacher="mean"),
    "simple-cutmix": Method(perturbation="cutmix"),
    "mt-cutmix": Method(perturbation="cutmix", teacher="mean"),
    "mt-cutmix-l2": Method(perturbation="cutmix", teacher="mean", loss="confident-l2", alpha=1.0),
    "simple-noise": Method(perturbation="noise"),
    "vat-entmin": Method(perturbation="vat", entropy=True, alpha=1.0),
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


VARIANTS: dict[VariantName, Variant] = {
    "1w-ct": Variant(first_is_clean=True, first_learns=False, second_learns=True),
    "1w-cs": Variant(first_is_clean=True, first_learns=True, second_learns=False),
    "2w-c1": Variant(first_is_clean=True, first_learns=True, second_learns=True),
    "1w-p2": Variant(first_is_clean=False, first_learns=False, second_learns=True),
    "2w-p2": Variant(first_is_clean=False, first_learns=True, second_learns=True),
}
