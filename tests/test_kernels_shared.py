"""Fused norms and losses by kernels, of a batch that two processes share: what one makes of the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernel_facts import DEVICE, assert_facts
from norm_facts import gradients, seeded
from oneway.common.terms import IGNORE
from oneway.engine.ranks import Ranks
from oneway.models.fuse import fuse
from oneway.models.swiftnet import SwiftNet
from oneway.models.wrn import WideResNet
from oneway.ops import cross_entropy, sharing_batches
from oneway.ops.backend import kernels_run
from ranks import in_ranks

NETWORKS = {
    "norms, residuals and a pool": lambda: SwiftNet(3, "resnet18", width=0.125),
    "sums before norms": lambda: WideResNet(3, depth=10, width=1),
}


@pytest.mark.slow
def test_facts_hold():
    """In a process of its own, in Triton's interpreter; processes that share a GPU cannot be forked from one."""
    if DEVICE.type == "cpu":
        assert_facts(__file__, "fact_")


def batch() -> tuple[Tensor, Tensor]:
    """Four images, of which the first has few labels; of two, a norm in the middle would have two numbers."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (4, 32, 32), generator=generator)
    labels[0][torch.rand(32, 32, generator=generator) < 0.8] = IGNORE
    return torch.rand(4, 3, 32, 32, generator=generator).contiguous(memory_format=torch.channels_last), labels


def learnt(ranks: Ranks, name: str) -> dict[str, NDArray[Any]]:
    """Loss, gradients and buffers after one pass over a process's share; losses and gradients are its part of them."""
    assert kernels_run(DEVICE)
    network = fuse(seeded(NETWORKS[name]).to(memory_format=torch.channels_last))
    mine = slice(4 * ranks.rank // ranks.world_size, 4 * (ranks.rank + 1) // ranks.world_size)
    x, labels = (each[mine] for each in batch())
    with sharing_batches(ranks.group):
        logits = network(x)
        loss = cross_entropy(logits, labels if logits.ndim == 4 else labels[:, 0, 0])
        loss.backward()
    parts = {"loss": loss.detach(), **gradients(network)}
    found = {name: ranks.sum(part) for name, part in parts.items()} | dict(network.named_buffers())
    return {name: value.numpy() for name, value in found.items()}


@pytest.mark.parametrize("name", NETWORKS)
def fact_shares_make_the_whole(name):
    alone = learnt(Ranks(), name)
    for shared in in_ranks(2, learnt, name):
        for key, value in alone.items():
            scale = max(float(np.abs(value).max(initial=0)), 1e-3)
            np.testing.assert_allclose(shared[key], value, rtol=1e-3, atol=1e-4 * scale, err_msg=key)
