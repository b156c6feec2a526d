"""Warm-up before the first step: CUDA is initialised, kernels are compiled in parallel, cuDNN autotunes."""

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
from oneway.engine.start import accelerated, batch_sizes
from oneway.engine.state import TrainingState
from oneway.models.norm import population_statistics
from oneway.ops import cache_folder, compile_ahead, hash_compiler, start_compilers
from oneway.ops.compilers import Compilers

AUTOTUNE_FROM_PIXELS = 5e10
"""Pixels of a run from which autotuning cuDNN saves more time than it takes: an H200 needs two nanoseconds for each."""


_compilers: Compilers | None = None
"""The compiler processes of the run that is about to start, until its kernels are compiled."""


@contextmanager
def prewarm_gpu(device: torch.device, config: Config) -> Iterator[None]:
    """Initialise CUDA, cuDNN and Triton in a background thread while the block loads the data.

    Compiler processes are started too, where the run's kernels are not in Triton's cache yet; they end with the block.
    Errors are ignored here: the first use meets and reports them.
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
        Thread(target=begin, name="prewarm", daemon=True).start()
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
    """Compile the kernels of a training step and of validation, unless Triton's cache has them.

    The step runs without launching kernels, on a copy of the state, and its results are discarded. Networks from a
    `model.factory` are left out. `kind` tells different steps of one run apart.
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
    except Exception:  # an error here ends no run: the first step raises it with a helpful message
        if device.type == "cuda":
            torch.cuda.empty_cache()
    _dismiss_compilers()


def _dismiss_compilers() -> None:
    global _compilers
    if _compilers is not None:
        _compilers.close()
        _compilers = None


def _is_ours(config: Config) -> bool:
    """Whether the network is one of this package, whose kernels are known."""
    return config.jitter.crop is not None and config.model.factory is None


def _marks(config: Config) -> list[str]:
    """Marker files in Triton's cache: they say that the kernels of such a run are in it."""
    with suppress(Exception):
        return [file.name for file in cache_folder().glob(f"{_mark(config)}*")]
    return []


def _mark(config: Config, device: torch.device | None = None, kind: str = "") -> str:
    """The name of a marker file, for a GPU and a kind of step. A wrong marker costs time and nothing else."""
    # Not the crops, which are fitted to the images later on: no kernel depends on their size.
    settings = config.method, config.variant, config.model, config.perturb, batch_sizes(config), config.train.precision
    known = repr((settings, config.data.name, config.data.path, __version__, torch.__version__))
    gpu = "".join(map(str, torch.cuda.get_device_capability(device))) if device and device.type == "cuda" else ""
    return "-".join(filter(None, ("oneway", hashlib.sha256(known.encode()).hexdigest()[:16], gpu, kind)))


def should_autotune(network: nn.Module, config: Config, iterations: float = math.inf) -> bool:
    """Whether cuDNN should autotune the convolutions of a run, and not choose algorithms by its heuristics.

    On an H200, four seconds of autotuning make a ResNet-18 4 % faster, which pays off in longer runs. Networks with
    depthwise-separable convolutions autotune for ten seconds and gain nothing: most of their convolutions are matrix
    products.
    """
    pixels = iterations * sum(batch_sizes(config)) * math.prod(config.jitter.crop or (0,))
    return pixels > AUTOTUNE_FROM_PIXELS and not any(
        isinstance(part, nn.Conv2d) and part.groups > 1 for part in network.modules()
    )


@contextmanager
def cudnn_autotune(enabled: bool = True) -> Iterator[None]:
    """Within the block, cuDNN autotunes each convolution once: shapes stay the same for the whole run."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = enabled
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
