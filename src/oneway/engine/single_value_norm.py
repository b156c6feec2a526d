"""Refuses settings with which batch norm would normalise a single value per channel, which has no deviation.

Shapes: N images, C channels, H×W pixels.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from oneway.common.errors import UserError
from oneway.config import Config
from oneway.engine.start import batch_sizes
from oneway.models.seed import seed_cpu


def refuse_single_value_batch_norm(network: nn.Module, config: Config) -> None:
    """Refuse a batch of one image with a crop so small that a batch norm would see one value per channel.

    Where a batch has one image, a copy of the network is run on one crop.

    Args:
        network: The network, on the CPU, before training.
        config: Every setting.
    """
    crop, batch = config.jitter.crop, [size for size in batch_sizes(config) if size]
    if crop is None or min(batch) > 1 or config.train.batch_norm == "frozen":
        return
    single: list[nn.Module] = []

    def stop_at_single_value(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0]
        if module.training and x.numel() == x.shape[1]:  # 1×C×1×1
            single.append(module)
            raise ValueError("a single value")

    probe = deepcopy(network).train()
    for module in probe.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.register_forward_pre_hook(stop_at_single_value)
    with seed_cpu(0), torch.no_grad():
        try:
            probe(torch.zeros(1, 3, *crop))
        except ValueError:
            if not single:
                raise
    if single:
        flag = "--train.batch-labelled" if batch[0] == 1 else "--train.batch-unlabelled"
        raise UserError(
            f"In a batch of 1 image, batch norm would see a single value of a crop of {crop[0]}×{crop[1]}, which has "
            f"no deviation. Use {flag} 2 or a larger --jitter.crop."
        )
