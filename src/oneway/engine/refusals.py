"""Refuses settings and methods with which a run would learn something else than it says, or nothing.

Shapes: N images, C channels, H×W pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from oneway.common.errors import UserError
from oneway.common.words import listed
from oneway.config import Config
from oneway.engine.ranks import Ranks
from oneway.engine.start import batch_sizes
from oneway.engine.state import TrainingState
from oneway.methods import METHODS
from oneway.models.seed import seed_cpu

APART = 1e-5
"""Differences of sums, relative to the sums of absolute values, that are more than rounding on other hardware."""


def refuse_indivisible(config: Config, processes: int) -> None:
    """Refuse batches that do not divide among the processes, and losses that need the whole batch in one process."""
    if processes == 1:
        return
    method, (labelled, unlabelled) = METHODS[config.method], batch_sizes(config)
    # Images that are mixed with one another go to the same process.
    together = 4 if method.mixes_labelled else 2 if method.augment and not method.augment_all else 1
    for flag, size, unit in (
        ("--train.batch-labelled", labelled, together),
        ("--train.batch-unlabelled", unlabelled, 2 if method.mixes else 1),
    ):
        if size % (unit * processes):
            kept = f", which keeps {'pairs' if unit == 2 else 'fours'} of images together" if unit > 1 else ""
            raise UserError(
                f"{flag} {size} does not divide among {processes} processes with method {config.method}{kept}. It is "
                f"the batch of all of them: use a multiple of {unit * processes}, or another number of processes."
            )
    if method.injects and labelled != unlabelled:
        raise UserError(
            f"Method {config.method} pastes labelled images into unlabelled ones in turn: with {processes} processes, "
            f"--train.batch-labelled {labelled} and --train.batch-unlabelled {unlabelled} have to be the same."
        )
    if config.train.balance == "ohem":
        raise UserError(
            f"--train.balance ohem looks for the hardest pixels of a whole batch, of which each of {processes} "
            "processes has a part. Use frequency or dice, or one process."
        )


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


def refuse_different_memory(heads: Sequence[nn.Module], ranks: Ranks) -> None:
    """Refuse a method whose processes remember different things: a checkpoint would keep those of the first alone."""
    tensors = {name: tensor for head in heads for name, tensor in head.state_dict().items()}
    if ranks.group is None or not tensors:
        return
    of_all = ranks.group.gather(torch.stack([_sums(tensor) for tensor in tensors.values()])).cpu()
    sums, sizes = of_all.unbind(dim=-1)
    apart = ((sums - sums[0]).abs() > APART * sizes[0]).any(dim=0)
    if names := [name for name, differs in zip(tensors, apart.tolist(), strict=True) if differs]:
        raise UserError(
            f"What the method remembers is not the same in all processes: {listed(names)}. Change it by values of the "
            "whole batch: ops.mean_of_all(values) is the mean over all processes, ops.gathered(rows) all their rows."
        )


def refuse_replaced_memory(state: TrainingState) -> None:
    """Refuse a method that puts new tensors in the places of its buffers.

    A captured step would go on reading and writing the first ones, and a step that is skipped would restore those.
    """
    first = {id(buffer) for buffers in state.guard.buffers.values() for buffer in buffers}
    now = [named for head in state.models.heads for named in head.named_buffers()]
    if names := [name for name, buffer in now if id(buffer) not in first]:
        raise UserError(
            f"The method replaces what it remembers by new tensors: {listed(names)}. Change it in place, by copy_ or "
            "lerp_: a step that is captured on a GPU does not see others."
        )


def _sums(tensor: Tensor) -> Tensor:
    """The sum of the values, and of their absolute values."""
    values = tensor.detach().float()
    return torch.stack((values.sum(dtype=torch.float64), values.abs().sum(dtype=torch.float64)))
