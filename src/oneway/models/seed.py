"""PyTorch's own random numbers as a function of a seed, which leave the caller's alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_GENERATOR = threading.RLock()
"""A process has one CPU generator: of two threads that build networks, one waits for the other."""


@contextmanager
def seed_cpu(seed: int) -> Iterator[None]:
    """Within the block, PyTorch's CPU generator starts from `seed`; afterwards it goes on where it was.

    Only one thread at a time is in such a block, so that each has the numbers of its own seed.
    Networks are built on the CPU. `torch.manual_seed` would also seed the generators of all GPUs, for good.
    """
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def seed_device(seed: int, device: torch.device) -> Iterator[None]:
    """`seed_cpu`, and likewise the generator of the current device."""
    if device.type == "cpu":
        with seed_cpu(seed):
            yield
        return
    with seed_cpu(seed), torch.random.fork_rng(devices=[device]):
        torch.cuda.manual_seed(seed)
        yield
