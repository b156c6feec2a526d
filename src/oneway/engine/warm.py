"""Before the first step: kernels are compiled side by side, and convolutions choose their algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import nn

from oneway.config import Config
from oneway.engine.step import in_bfloat16
from oneway.models.norm import population_statistics
from oneway.models.precision import weights_in
from oneway.ops import compile_ahead


def compile_kernels(network: nn.Module, config: Config, device: torch.device) -> None:
    """Those that a network of ours takes, as a student and as a teacher of crops, and where it is validated.

    What is computed is thrown away, and so is the network: a copy, since norms would move their statistics.
    """
    crop, batch = config.jitter.crop, config.train.batch_labelled
    if crop is None or config.model.factory is not None:
        return
    network = deepcopy(network)
    lower = in_bfloat16(config, device)

    def rehearse() -> None:
        images = torch.zeros(batch, 3, *crop, device=device)
        learning = [parameter for parameter in network.parameters() if parameter.requires_grad]
        cast = weights_in(torch.bfloat16, *([network] if lower else []))
        half = torch.autocast(device.type, torch.bfloat16, enabled=lower)
        with cudnn_autotune(pays_to_try(network)), half, cast:  # which remembers what it has chosen for a shape
            torch.autograd.grad(network(images).float().sum(), learning, allow_unused=True)
            with torch.no_grad(), population_statistics(network):
                network(images)
        with torch.no_grad(), population_statistics(network):
            network(images)

    try:
        compile_ahead(rehearse)
    except Exception:  # a rehearsal ends no run: what is wrong, the first step says in words that help
        if device.type == "cuda":
            torch.cuda.empty_cache()


def pays_to_try(network: nn.Module) -> bool:
    """Whether convolutions should try their algorithms, and not take what cuDNN guesses.

    On an H200, a ResNet-18 is 4 % faster for three seconds of trying. Depthwise-separable networks have twice as many
    convolutions, try for ten seconds, and are as fast as by guessing: most of them are products of matrices.
    """
    return not any(isinstance(layer, nn.Conv2d) and layer.groups > 1 for layer in network.modules())


@contextmanager
def cudnn_autotune(enabled: bool = True) -> Iterator[None]:
    """Convolutions try their algorithms once: shapes stay the same for the whole run."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = enabled
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
