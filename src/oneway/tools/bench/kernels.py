"""Where the time of a step goes: its kernels by kind, recognised by their names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from oneway.tools.bench.timing import synchronise

CALLS, CALLS_ON_CPU = 3, 1

KINDS: dict[str, re.Pattern[str]] = {
    kind: re.compile(pattern, re.IGNORECASE)
    for kind, pattern in {
        "crops, perturbation": r"^_crop|^_perturb|grid_sampler",
        "losses": r"^_(cross_entropy|divergence|warped_divergence|normalise|merge|frame)\b|softmax|nll_loss",
        "batch norm": r"batch_?norm|(^|[^a-z])bn_|^_norm_",
        "convolution": r"conv(?!ert)|xmma|gemm|cutlass|cask|cudnn|wgrad|dgrad|fprop|addpadding|nvjet|addmm|aten::mm\b",
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
    """Time of one call in kernels of each kind, and in those of none; on a CPU, in operations."""
    on_gpu = device.type == "cuda"
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would report its own start and stop
    calls = CALLS if on_gpu else CALLS_ON_CPU
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as recorded:
        for _ in range(calls):
            call()
        synchronise(device)
    spent = dict.fromkeys((*KINDS, OTHER), 0.0)
    for event in recorded.key_averages():
        microseconds = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        spent[kind_of(event.key)] += microseconds / 1000 / calls
    return spent
