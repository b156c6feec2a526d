"""Before the first step: kernels are compiled side by side, and convolutions choose their algorithms."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from threading import Thread

import torch
from torch import nn

from oneway import __version__
from oneway.config import Config
from oneway.engine.start import accelerated, batch_of
from oneway.engine.state import TrainingState
from oneway.models.norm import population_statistics
from oneway.ops import cache_folder, compile_ahead, hash_compiler, start_compilers
from oneway.ops.compilers import Compilers

TRIED = 5e10
"""Pixels of a run in which faster convolutions gain what trying takes: an H200 needs two nanoseconds for each."""


_compilers: Compilers | None = None
"""Of the run that is about to start, until it has used them."""


@contextmanager
def awakened(device: torch.device, config: Config) -> Iterator[None]:
    """Begins what a GPU takes before its first kernel, beside what is read meanwhile; it has an end with the block.

    That is a context, cuDNN, Triton's own hash, and compilers where kernels have not been compiled here before. Whoever
    needs them sooner makes them; what fails here, fails there.
    """
    global _compilers

    def begin() -> None:
        with suppress(Exception):
            torch.zeros(1, device=device)
            hash_compiler()
            x = torch.zeros(1, 8, 8, 8, device=device, dtype=torch.bfloat16, requires_grad=True)
            torch.conv2d(x, x).sum().backward()

    if device.type == "cuda":
        if _is_ours(config) and accelerated(config, device) and not _marks(config):
            _compilers = start_compilers()
        Thread(target=begin, name="awaken", daemon=True).start()
    try:
        yield
    finally:
        _dismiss_compilers()


def compile_kernels(
    state: TrainingState,
    step: Callable[[TrainingState], object],
    config: Config,
    device: torch.device,
    kind: str = "",
) -> None:
    """Those of a step of our networks, of some kind, and of the one that is validated, unless they were before.

    What is computed is thrown away; a step changes a copy of the state.
    """
    mark = _mark(config, device, kind)
    if not _is_ours(config) or mark in _marks(config):
        _dismiss_compilers()
        return
    crop = config.jitter.crop
    assert crop is not None

    def rehearse() -> None:
        copy = deepcopy(state)
        with warnings.catch_warnings(action="ignore"):  # a copied optimiser warns of steps outside a captured graph
            step(copy)
        with torch.no_grad(), population_statistics(copy.kept):
            copy.kept(torch.zeros(1, 3, *crop, device=device))

    try:
        compile_ahead(rehearse, _compilers)
        if device.type == "cuda":
            (cache_folder() / mark).touch()
    except Exception:  # a rehearsal ends no run: what is wrong, the first step says in words that help
        if device.type == "cuda":
            torch.cuda.empty_cache()
    _dismiss_compilers()


def _dismiss_compilers() -> None:
    global _compilers
    if _compilers is not None:
        _compilers.close()
        _compilers = None


def _is_ours(config: Config) -> bool:
    """Whether the kernels of a network are known."""
    return config.jitter.crop is not None and config.model.factory is None


def _marks(config: Config) -> list[str]:
    """Names of files in Triton's cache that say that kernels of such a run are there."""
    with suppress(Exception):
        return [file.name for file in cache_folder().glob(f"{_mark(config)}*")]
    return []


def _mark(config: Config, device: torch.device | None = None, kind: str = "") -> str:
    """The name of such a file; of some GPU, and of some kind of step. A wrong one would cost no more than time."""
    # Not the crops, which are fitted to the images later on: no kernel depends on their size.
    settings = config.method, config.variant, config.model, config.perturb, batch_of(config), config.train.precision
    known = repr((settings, config.data.name, config.data.path, __version__, torch.__version__))
    gpu = "".join(map(str, torch.cuda.get_device_capability(device))) if device and device.type == "cuda" else ""
    return "-".join(filter(None, ("oneway", hashlib.sha256(known.encode()).hexdigest()[:16], gpu, kind)))


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
