"""The optimiser's parameter groups, and what changes with the iteration: learning rate and α."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from oneway.config import Optimiser, Train

SCHEDULES: dict[str, Callable[[float], float]] = {
    "quarter-cosine": lambda e: math.cos(e * math.pi / 2),
    "polynomial": lambda e: (1 - e) ** 0.9,
    "constant": lambda e: 1.0,
}
"""Factor of the learning rate after a fraction e of the run."""


def optimiser_for(
    model: nn.Module, config: Optimiser, pretrained: Sequence[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """The configured optimiser, with a rate and an L2 weight of their own for parameters that were pretrained."""
    known = {id(parameter) for parameter in pretrained}
    new = [parameter for parameter in model.parameters() if id(parameter) not in known]
    groups = [
        {"params": list(parameters), "initial_lr": rate, "lr": rate, "weight_decay": decay}
        for parameters, rate, decay in (
            (new, config.learning_rate, config.weight_decay),
            (pretrained, config.learning_rate_pretrained, config.weight_decay_pretrained),
        )
        if parameters
    ]
    if config.name == "sgd":
        return torch.optim.SGD(groups, momentum=config.momentum, nesterov=config.momentum > 0, fused=True)
    return torch.optim.Adam(groups, betas=config.betas, fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, schedule: str, iteration: int, iterations: int) -> None:
    """The rate of one iteration: a function of its number, so that there is no schedule to resume."""
    factor = SCHEDULES[schedule](iteration / iterations)
    for group in optimiser.param_groups:
        group["lr"] = factor * group["initial_lr"]


def alpha_at(config: Train, iteration: int, iterations: int) -> float:
    """α of one iteration: zero during the warm-up, if there is one."""
    return config.alpha if iteration >= config.consistency_from * iterations else 0.0


def total_iterations(config: Train, labelled: int) -> int:
    """Length of a run; an epoch has ⌊|D_l| / B_l⌋ iterations, and at least one."""
    if config.iterations is not None:
        return config.iterations
    return max(1, round(config.epochs * max(1, labelled // config.batch_labelled)))
