"""The names a user chooses from: methods and consistency variants, each a row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MethodName = Literal["supervised", "simple-ph", "simple-tps", "simple-phtps", "mt-phtps"]
VariantName = Literal["1w-ct", "1w-cs", "2w-c1"]
SplitName = Literal["train", "val"]


@dataclass(frozen=True)
class Method:
    """What is done with unlabelled images: how the student's input is perturbed, and who teaches."""

    perturbation: Literal["ph", "tps", "phtps"] | None
    teacher: Literal["simple", "mean"] = "simple"

    @property
    def supervised(self) -> bool:
        """Whether the unlabelled images are left out."""
        return self.perturbation is None


METHODS: dict[MethodName, Method] = {
    "supervised": Method(perturbation=None),
    "simple-ph": Method(perturbation="ph"),
    "simple-tps": Method(perturbation="tps"),
    "simple-phtps": Method(perturbation="phtps"),
    "mt-phtps": Method(perturbation="phtps", teacher="mean"),
}


@dataclass(frozen=True)
class Variant:
    """Where gradients flow in D(prediction on the clean image, prediction on the perturbed image).

    A branch that learns is the student; one that does not is the teacher.
    """

    clean_learns: bool
    perturbed_learns: bool

    @property
    def two_way(self) -> bool:
        """Whether both branches learn."""
        return self.clean_learns and self.perturbed_learns


VARIANTS: dict[VariantName, Variant] = {
    "1w-ct": Variant(clean_learns=False, perturbed_learns=True),
    "1w-cs": Variant(clean_learns=True, perturbed_learns=False),
    "2w-c1": Variant(clean_learns=True, perturbed_learns=True),
}
