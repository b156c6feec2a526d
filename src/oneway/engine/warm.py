"""Before the first step: kernels are compiled side by side, and convolutions choose their algorithms."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from threading import Thread

import torch
from torch import nn

from oneway.config import Config
from oneway.engine.start import batch_of
from oneway.engine.state import TrainingState
from oneway.models.norm import population_statistics
from oneway.ops import compile_ahead, hash_compiler

TRIED = 5e10
"""Pixels of a run in which faster convolutions gain what trying takes: an H200 needs two nanoseconds for each."""


def awaken(device: torch.device) -> None:
    """Begins what a GPU takes before its first kernel, beside what is read meanwhile: a context, and Triton's own hash.

    Whoever needs them sooner makes them; what fails here, fails there.
    """

    def begin() -> None:
        with suppress(Exception):
            torch.zeros(1, device=device)
            hash_compiler()

    if device.type == "cuda":
        Thread(target=begin, name="awaken", daemon=True).start()


def compile_kernels(
    state: TrainingState, step: Callable[[TrainingState], object], config: Config, device: torch.device
) -> None:
    """Those of a step of our networks, and of the one that is validated.

    What is computed is thrown away; a step changes a copy of the state.
    """
    crop = config.jitter.crop
    if crop is None or config.model.factory is not None:
        return

    def rehearse() -> None:
        copy = deepcopy(state)
        with warnings.catch_warnings(action="ignore"):  # a copied optimiser warns of steps outside a captured graph
            step(copy)
        with torch.no_grad(), population_statistics(copy.kept):
            copy.kept(torch.zeros(1, 3, *crop, device=device))

    try:
        compile_ahead(rehearse)
    except Exception:  # a rehearsal ends no run: what is wrong, the first step says in words that help
        if device.type == "cuda":
            torch.cuda.empty_cache()


def pays_to_try(network: nn.Module, config: Config, iterations: float = math.inf) -> bool:
    """Whether convolutions of a run should try their algorithms, and not take what cuDNN guesses.

    On an H200, a ResNet-18 is 4 % faster for four seconds of trying, which is for longer runs. Depthwise-separable
    networks have twice as many convolutions, try for ten seconds, and are as fast as by guessing: most of them are
    products of matrices.
    """
    pixels = iterations * sum(batch_of(config)) * math.prod(config.jitter.crop or (0,))
    return pixels > TRIED and not any(isinstance(part, nn.Conv2d) and part.groups > 1 for part in network.modules())


@contextmanager
def cudnn_autotune(enabled: bool = True) -> Iterator[None]:
    """Convolutions try their algorithms once: shapes stay the same for the whole run."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = enabled
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
