"""Factors of classes: where a miss costs more than a false alarm, or less, a class wins at another probability than ½.

Shapes: C classes; logits are N×C×h×w, or N×C.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real

import torch
from torch import Tensor, nn

from oneway.common.errors import UserError, unknown


class Favoured(nn.Module):
    """A network whose probabilities are multiplied by a factor for each class, and normalised again by the softmax.

    It adds the factors' logarithms to the logits. Upsampling keeps them, as its weights sum to one, so that they may be
    those of cells; means of probabilities do not, so that it is around a `Mirrored`, and not within.
    """

    logarithms: Tensor

    def __init__(self, network: nn.Module, logarithms: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("logarithms", logarithms)  # C×1×1

    def forward(self, x: Tensor) -> Tensor:
        return self.favour(self.network(x))

    def favour(self, logits: Tensor) -> Tensor:
        """The logits with the factors."""
        return logits + (self.logarithms if logits.ndim == 4 else self.logarithms.flatten())


def favoured(
    network: nn.Module, classes: Sequence[str], factors: Mapping[str, float] | None, device: torch.device
) -> nn.Module:
    """The network with factors of some classes, by name; without any, the network itself.

    Raises:
        UserError: A class is unknown, or a factor is no finite number above 0.
    """
    if not factors:
        return network
    logarithms = torch.zeros(len(classes), 1, 1)
    for name, factor in factors.items():
        if name not in classes:
            raise unknown("class to favour", str(name), classes)
        if not isinstance(factor, Real) or not 0 < factor < math.inf:
            raise UserError(
                f"favour {name}={factor}: the probability of a class is multiplied by a number above 0. 2 finds more "
                "of it, with more false alarms; 0.5 the reverse."
            )
        logarithms[classes.index(name)] = math.log(factor)
    return Favoured(network, logarithms.to(device))


def in_words(factors: Mapping[str, float]) -> str:
    """Which classes are favoured, and by how much."""
    return ", ".join(f"{name} × {factor:g}" for name, factor in factors.items())
