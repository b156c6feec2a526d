"""The optimiser's parameter groups, and what changes with the iteration: learning rate and α."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from oneway.config import Optimiser, Train

SCHEDULES: dict[str, Callable[[float], float]] = {
    "quarter-cosine": lambda e: math.cos(e * math.pi / 2),
    "polynomial": lambda e: (1 - e) ** 0.9,
    "steps": lambda e: 0.2 ** sum(e >= fall for fall in (0.3, 0.6, 0.8)),  # as Wide ResNets were first trained
    "constant": lambda e: 1.0,
}
"""Schedules: the factor of the learning rate after a fraction e of the run."""


def _uncompiled(kind: Any) -> Any:
    """A subclass of a PyTorch optimiser whose methods are not wrapped for torch.compile.

    The wrappers import torch.compile, a quarter of all import time, only to exclude the optimiser from compilation.
    """
    plain = {name: unwrap(getattr(kind, name)) for name in ("add_param_group", "zero_grad", "step")}
    return type(kind.__name__, (kind,), {**plain, "step": torch.no_grad()(plain["step"])})


OPTIMISERS = {
    "sgd": _uncompiled(torch.optim.SGD),
    "adam": _uncompiled(torch.optim.Adam),
    "adamw": _uncompiled(torch.optim.AdamW),
}


def optimiser_for(
    models: Sequence[nn.Module], config: Optimiser, pretrained: Sequence[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """The configured optimiser; pretrained parameters have a learning rate and weight decay of their own.

    Parameter groups are in descending order of learning rate.
    """
    known = {id(parameter) for parameter in pretrained}
    every = [parameter for model in models for parameter in model.parameters()]
    new = [parameter for parameter in every if id(parameter) not in known]
    on_gpu = every[0].is_cuda
    factors = layer_factors(models, config.layer_decay)
    groups = [
        {
            "params": list(parameters),
            "initial_lr": rate,
            # A tensor on a GPU, where a captured step reads it.
            "lr": torch.tensor(rate, device=parameters[0].device) if on_gpu else rate,
            "weight_decay": decay,
        }
        for origin, base, decay in (
            (new, config.learning_rate, config.weight_decay),
            (pretrained, config.learning_rate_pretrained, config.weight_decay_pretrained),
        )
        for parameters, rate in _by_rate(origin, base, factors)
    ]
    if config.name == "sgd":
        nesterov = config.nesterov and config.momentum > 0
        optimiser: torch.optim.Optimizer = OPTIMISERS["sgd"](
            groups, momentum=config.momentum, nesterov=nesterov, fused=True
        )
        if config.momentum > 0:
            # Start from zeros: a first step that is skipped must not leave the momentum undefined.
            for parameter in every:
                optimiser.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return optimiser
    adam: torch.optim.Optimizer = OPTIMISERS[config.name](groups, betas=config.betas, fused=True, capturable=on_gpu)
    return adam


def layer_factors(models: Sequence[nn.Module], decay: float) -> dict[int, float]:
    """Layer-wise learning-rate decay: factors by the `id` of parameters; 1 for parameters that are not listed.

    The rate falls by the same factor from each block of an encoder to the one before it, down to the embeddings.
    """
    if decay == 1:
        return {}
    return {
        id(parameter): decay**behind
        for model in models
        for parameter, behind in getattr(getattr(model, "encoder", None), "layers_behind", dict)().items()
    }


def _by_rate(
    parameters: Sequence[nn.Parameter], rate: float, factors: Mapping[int, float]
) -> Iterator[tuple[list[nn.Parameter], float]]:
    parts: dict[float, list[nn.Parameter]] = {}
    for parameter in parameters:
        parts.setdefault(factors.get(id(parameter), 1.0), []).append(parameter)
    for factor in sorted(parts, reverse=True):
        yield parts[factor], factor * rate


def set_learning_rate(optimiser: torch.optim.Optimizer, schedule: str, iteration: int, iterations: int) -> float:
    """Set the learning rate of an iteration: a function of its number, so there is no scheduler state to resume.

    Returns the rate of randomly initialised parameters, or, where there are none, of pretrained ones.
    """
    factor = SCHEDULES[schedule](iteration / iterations)
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(factor * group["initial_lr"])
        else:
            group["lr"] = factor * group["initial_lr"]
    return factor * optimiser.param_groups[0]["initial_lr"]


def alpha_at(config: Train, iteration: int, iterations: int) -> float:
    """α of an iteration: zero during the warm-up, if there is one."""
    return config.alpha if iteration >= config.consistency_from * iterations else 0.0


def warm_up_at(config: Train, iteration: int) -> float:
    """Warm-up of the EMA: the student's weight 1/t in iteration t = 1, 2, …; 0 once 1 − decay is larger."""
    share = 1 / (iteration + 1)
    return share if config.teacher_warm_up and share > 1 - config.teacher_decay else 0.0
