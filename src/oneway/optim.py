"""The optimiser's parameter groups, and the learning rate as a function of the iteration."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from oneway.config import Optimiser, Train
from oneway.models import SwiftNet

SCHEDULES: dict[str, Callable[[float], float]] = {
    "quarter-cosine": lambda e: math.cos(e * math.pi / 2),
    "polynomial": lambda e: (1 - e) ** 0.9,
    "constant": lambda e: 1.0,
}
"""Factor of the learning rate after a fraction e of the run."""


def optimiser_for(model: SwiftNet, config: Optimiser, pretrained_encoder: bool) -> torch.optim.Adam:
    """Adam with rates and L2 weights of their own for parameters that were pretrained."""
    pretrained = {id(parameter) for parameter in model.encoder.parameters()} if pretrained_encoder else set()
    groups = [
        {
            "params": [p for p in model.parameters() if (id(p) in pretrained) == is_pretrained],
            "initial_lr": rate,
            "lr": rate,
            "weight_decay": decay,
        }
        for is_pretrained, rate, decay in (
            (False, config.learning_rate, config.weight_decay),
            (True, config.learning_rate_pretrained, config.weight_decay_pretrained),
        )
    ]
    return torch.optim.Adam([group for group in groups if group["params"]], betas=config.betas)


def set_learning_rate(optimiser: torch.optim.Optimizer, schedule: str, iteration: int, iterations: int) -> None:
    """The rate of one iteration: a function of its number, so that there is no schedule to resume."""
    factor = SCHEDULES[schedule](iteration / iterations)
    for group in optimiser.param_groups:
        group["lr"] = factor * group["initial_lr"]


def total_iterations(config: Train, labelled: int) -> int:
    """Length of a run; an epoch has ⌊|D_l| / B_l⌋ iterations, and at least one."""
    if config.iterations is not None:
        return config.iterations
    return max(1, round(config.epochs * max(1, labelled // config.batch_labelled)))
