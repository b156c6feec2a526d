"""Initial weights that depend on a seed and on nothing else, and leave the caller's random numbers alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seed_cpu(seed: int) -> Iterator[None]:
    """Within the block, PyTorch's CPU generator starts from `seed`; afterwards it goes on where it was.

    Networks are built on the CPU. `torch.manual_seed` would also seed the generators of all GPUs, for good.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
