"""Before the first step: a network's kernels are compiled side by side, where each would be waited for by itself."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn

from oneway.config import Config
from oneway.engine.step import in_bfloat16
from oneway.models.norm import population_statistics
from oneway.models.precision import weights_in
from oneway.ops import compile_ahead


def compile_kernels(network: nn.Module, config: Config, device: torch.device) -> None:
    """Those that a network of ours takes on crops, forwards and back, as a student and as a teacher.

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
        with torch.autocast(device.type, torch.bfloat16, enabled=lower), cast:
            torch.autograd.grad(network(images).float().sum(), learning, allow_unused=True)
            with torch.no_grad(), population_statistics(network):
                network(images)

    try:
        compile_ahead(rehearse)
    except torch.OutOfMemoryError:  # the step itself says so, in words that help
        torch.cuda.empty_cache()
