"""The networks that a run begins with: random, or filled with weights from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import nn

from oneway.common.streams import stream
from oneway.common.terms import Task
from oneway.config import Model
from oneway.models import build
from oneway.models.factory import examine

if TYPE_CHECKING:
    from oneway.runs.weights import Source


class Prepared(NamedTuple):
    """A network that is ready to train."""

    network: nn.Module
    pretrained: list[nn.Parameter]
    """What `model.weights` filled."""

    remarks: list[str]
    """What the user should know about it."""


def student_seed(seed: int, which: int) -> int:
    """Decides the initial weights of one of several students: the run's own seed, then others."""
    return seed if which == 0 else int(stream(seed, "student", which).integers(2**32))


def locate_weights(config: Model) -> Source | None:
    """What a network starts from, unless from random weights; refused here if it cannot be had. Needs no data."""
    if config.weights is None:
        return None
    from oneway.runs.weights import locate  # with timm, which toys do without

    return locate(config)


def prepare(
    config: Model, classes: int, seed: int, task: Task, crop: tuple[int, int] | None, weights: Source | None = None
) -> Prepared:
    """The configured network: random, then filled with the weights that were located; if not ours, it is examined."""
    network, remarks = build(config, classes, seed), []
    if config.factory is not None and crop is not None:
        remarks = examine(network, config.factory, classes, task, crop)
    if weights is None:
        return Prepared(network, [], remarks)
    from oneway.runs.weights import load_weights  # likewise

    loaded = load_weights(network, weights)
    return Prepared(network, loaded.parameters, [*remarks, *loaded.remarks])
