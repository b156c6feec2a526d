"""The interface of methods: a batch and settings go in, named losses come out.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from oneway.perturb import Perturbation

if TYPE_CHECKING:
    from oneway.draws import AugSegDraws, ClassAndChannelDraws
    from oneway.methods.table import BalanceName, LossName, Variant
    from oneway.models.roles import Models


class Loss(NamedTuple):
    """A named scalar: `value` is logged under the name, and weight · value is differentiated."""

    name: str
    value: Tensor
    weight: Tensor | float | None = None  # 1

    @property
    def weighted(self) -> Tensor:
        """The term of the objective: weight · value."""
        return self.value if self.weight is None else self.weight * self.value


Losses = Iterator[Loss | tuple[Loss, ...]]
"""A backward pass follows each yield and frees the activations: of one loss, or of several that share them."""


class Pair(NamedTuple):
    """Two overlapping crops of each unlabelled image."""

    first: Tensor  # N×3×H×W, those of `Batch.unlabelled`
    second: Tensor  # N×3×H×W
    inside: Tensor  # N×H×W, whether a pixel of the first shows the image
    down: Tensor  # N int64, cells by which the second lies below the first
    right: Tensor  # N int64, likewise to the right of it
    places: Tensor  # N×K numbers in [0, 1) that select cells of both crops


@dataclass(frozen=True)
class Batch:
    """A mixed batch. Images are computed when a method asks for them, and freed when it drops them."""

    labelled: Callable[[], tuple[Tensor, Tensor]]
    """x_l and y_l: N×3×H×W images in [0, 1] with N×H×W labels."""

    unlabelled: Callable[[], Tensor]
    """x_u: N×3×H×W, clean."""

    perturbation: Callable[[Tensor, int], Perturbation]
    """The method's perturbation of x_u, for a view."""

    noise: Tensor | None = None
    """Standard normal noise of x_u's shape, where the method asks for it."""

    selection: ClassAndChannelDraws | None = None
    """Uniform numbers that select the classes to mix and the channels to drop, where the method asks for them."""

    pair: Callable[[], Pair] | None = None
    """Two overlapping crops, where the method asks for them."""

    augseg: AugSegDraws | None = None
    """AugSeg's squares: of labelled images, pasted into x_u, and of the results, pasted into one another."""


@dataclass(frozen=True)
class Settings:
    """The numbers and choices of a method."""

    alpha: Tensor | float
    """α, the weight of the consistency loss; on the device, so that it can change between replays of a CUDA graph."""

    variant: Variant
    loss: LossName
    confidence: float
    """τ, the probability that a pseudo-label must exceed."""

    entropy: float
    """The weight of the entropy of predictions."""

    adversarial_norm: float
    """ε of VAT, the norm of the adversarial perturbation."""

    balance: BalanceName = "none"
    """How classes are balanced in the loss of labelled images."""

    class_weights: Tensor | None = None
    """C factors of the classes' losses, where the balance is by frequency."""

    progress: Tensor | float = 0.0
    """The share of the run's iterations that is done, for schedules; on the device, as α is."""


LossesOf = Callable[["Models", Batch, Settings], Losses]
"""A method: a generator of losses."""
