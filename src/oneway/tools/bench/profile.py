"""Where the time of a step goes, and the least that it could take.

Kernels are told apart by their names. Two floors lie below them:

Arithmetic: the multiplications and additions of convolutions and matrix products, at the rate of a large matrix product
on the same device.

Bytes: each convolution reads its input and writes its output once. With a gradient it reads the input and the output's
gradient once more, and writes the input's gradient unless that is an image. All that lies between two convolutions
(norms, ReLU, sums, interpolation) and the losses are taken to cost nothing, as if fused into them; weights, which are
small beside activations, are left out. Two bytes a number on a GPU, four on a CPU, at the rate of a large copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from oneway.tools.bench.timing import Rates, synchronise

KINDS: dict[str, re.Pattern[str]] = {
    kind: re.compile(pattern, re.IGNORECASE)
    for kind, pattern in {
        "crops, perturbation": r"^_crop|^_perturb|^_jitter|grid_sampler",
        "losses": r"^_(cross_entropy|divergence|warped_divergence|normalise|merge|pad_logits)\b|softmax|nll_loss",
        "batch norm": r"batch_?norm|(^|[^a-z])bn_|^_norm_",
        "convolution": r"conv(?!ert)|^_fold\b|xmma|gemm|cutlass|cask|cudnn|wgrad|dgrad|fprop|addpadding|nvjet|splitk"
        r"|addmm|aten::mm\b",
        "pooling": r"pool",
        "interpolation": r"upsample|interpolat|_resize",
        "optimiser": r"multi_tensor_apply|fused_(adam|sgd)|foreach",
        "copies": r"memcpy|memset|copy|catarray|fill|aten::(cat|_to_copy|zero_|empty|clone)",
        "elementwise": r"elementwise|aten::(add|sub|mul|div|clamp|relu|threshold|where|exp|log|lerp|index|neg|sum)",
    }.items()
}
"""The first that fits. What plain PyTorch does to crop and perturb looks like any other elementwise work."""

OTHER = "other"


def kind_of(kernel: str) -> str:
    """What a kernel is for."""
    return next((kind for kind, pattern in KINDS.items() if pattern.search(kernel)), OTHER)


def milliseconds_by_kind(call: Callable[[], object], device: torch.device) -> dict[str, float]:
    """Milliseconds of one call in kernels of each kind, and in all others; on a CPU, in operations."""
    on_gpu = device.type == "cuda"
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would report its own start and stop
    calls = 3 if on_gpu else 1
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as recorded:
        for _ in range(calls):
            call()
        synchronise(device)
    spent = dict.fromkeys((*KINDS, OTHER), 0.0)
    for event in recorded.key_averages():
        microseconds = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        spent[kind_of(event.key)] += microseconds / 1000 / calls
    return spent


@dataclass
class Work:
    """What one call has to do at least."""

    flops: int = 0
    numbers: int = 0
    """How many values of activations are read or written."""

    def milliseconds(self, rates: Rates, device: torch.device) -> dict[str, float]:
        """The least milliseconds that the work takes: by the device's arithmetic, and by its memory."""
        size = 2 if device.type == "cuda" else 4
        return {"arithmetic_ms": 1000 * self.flops / rates.flops, "bytes_ms": 1000 * size * self.numbers / rates.bytes}


def count_work(call: Callable[[], object], *networks: nn.Module) -> Work:
    """Call a function once and count its work; `networks` are those whose convolutions take part."""
    work = Work()

    def count_traffic(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        (x,) = inputs
        work.numbers += x.numel() + output.numel()
        if output.requires_grad:
            work.numbers += x.numel() + output.numel() + (x.numel() if x.requires_grad else 0)

    layers = {layer for network in networks for layer in network.modules() if isinstance(layer, nn.Conv2d)}
    handles = [layer.register_forward_hook(count_traffic) for layer in layers]
    try:
        with FlopCounterMode(display=False) as counter:
            call()
    finally:
        for handle in handles:
            handle.remove()
    work.flops = counter.get_total_flops()
    return work
