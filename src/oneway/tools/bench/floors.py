"""The least time that a step could take: by its arithmetic, and by the bytes that must move.

Arithmetic: the multiplications and additions of its convolutions and matrix products, at the rate of a large matrix
product on the same device.

Bytes: each convolution reads its input and writes its output once. With a gradient it reads the input and the output's
gradient once more, and writes the input's gradient unless that is an image. All that lies between two convolutions
(norms, ReLU, sums, interpolation) and the losses are taken to cost nothing, as if fused into them; weights, which are
small beside activations, are left out. Two bytes a number on a GPU, four on a CPU, at the rate of a large copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from oneway.tools.bench.timing import Rates


@dataclass
class Work:
    """What one call has to do at least."""

    flops: int = 0
    numbers: int = 0
    """Of activations, read or written."""

    def milliseconds(self, rates: Rates, device: torch.device) -> dict[str, float]:
        """The two floors."""
        size = 2 if device.type == "cuda" else 4
        return {
            "arithmetic_ms": 1000 * self.flops / rates.flops,
            "bytes_ms": 1000 * size * self.numbers / rates.bytes,
        }


def count_work(call: Callable[[], object], *networks: nn.Module) -> Work:
    """Counts while it calls, once; `networks` are those whose convolutions take part."""
    work = Work()
    counter = FlopCounterMode(display=False)
    with counter, _count_traffic(work, {id(network): network for network in networks}.values()):
        call()
    work.flops = counter.get_total_flops()
    return work


@contextmanager
def _count_traffic(work: Work, networks: Any) -> Iterator[None]:
    def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        (x,) = inputs
        work.numbers += x.numel() + output.numel()
        if output.requires_grad:
            work.numbers += x.numel() + output.numel() + (x.numel() if x.requires_grad else 0)

    layers = [layer for network in networks for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    handles = [layer.register_forward_hook(count) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
