"""What a method is given and what it yields: a mixed batch, its settings, and losses by name.

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
    """A scalar with the name that it is logged by; the gradient is that of weight · value."""

    name: str
    value: Tensor
    weight: Tensor | float | None = None  # 1

    @property
    def weighted(self) -> Tensor:
        """What is differentiated."""
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
    places: Tensor  # N×K numbers in [0, 1): cells of both, for whatever wants some of them


@dataclass(frozen=True)
class Batch:
    """A mixed batch. Its images are made when a method asks for them, and are gone when it lets go of them."""

    labelled: Callable[[], tuple[Tensor, Tensor]]
    """x_l and y_l: N×3×H×W images in [0, 1] with N×H×W labels."""

    unlabelled: Callable[[], Tensor]
    """x_u: N×3×H×W, clean."""

    perturbation: Callable[[Tensor, int], Perturbation]
    """That of the method, for x_u and a view of it."""

    noise: Tensor | None = None
    """As large as x_u, standard normal, where the method asks for it."""

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
    """α, the weight of the consistency loss; on the device, since it may change while a captured step stays."""

    variant: Variant
    loss: LossName
    confidence: float
    entropy: float
    adversarial_norm: float
    balance: BalanceName = "none"
    """What keeps frequent classes from deciding the loss of labelled images alone."""

    class_weights: Tensor | None = None
    """C factors of the classes' losses, where the balance is by frequency."""


LossesOf = Callable[["Models", Batch, Settings], Losses]
"""A method: a generator of losses."""
