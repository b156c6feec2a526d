"""`oneway bench infer`: images per second, one by one, as PyTorch comes and as fast as a network can predict."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy

import torch
from rich.table import Table
from torch import Tensor, nn

from oneway import models
from oneway.config import Model
from oneway.engine.warm import cudnn_autotune
from oneway.ops import cross_entropy, pixels_of, references, upsample
from oneway.tools.bench.findings import NOTHING, Findings, Options, Result, Say, table_of
from oneway.tools.bench.paper import INFERENCE
from oneway.tools.bench.params import SEGMENTING
from oneway.tools.bench.runtimes import bench_runtimes
from oneway.tools.bench.timing import milliseconds_apart, release, synchronise

SIZES = ((512, 1024), (1024, 2048))
SMALL_SIZES = ((64, 128),)
WARM_UP = 3

Ending = Callable[[Tensor, Tensor], Tensor]
"""What follows the logits, given the labels: N×H×W."""

Prepare = Callable[[Callable[[], Tensor], torch.device], Callable[[], object]]
"""What makes a call ready to be timed."""


def as_in_the_paper(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy; in half precision by its kernel, in single precision as plain PyTorch computes it."""
    with nullcontext() if logits.dtype == torch.bfloat16 else references():
        return cross_entropy(logits, labels)


def most_probable(logits: Tensor, labels: Tensor) -> Tensor:
    """The class of each pixel, which is what a user wants."""
    return upsample(logits, pixels_of(labels)).argmax(dim=1)


ENDINGS: dict[str, Ending] = {"loss": as_in_the_paper, "classes": most_probable}


def bench_infer(options: Options, say: Say) -> Findings:
    """Measure every network that segments, at every size; or by several runtimes, where they are asked for."""
    if options.runtimes:
        return bench_runtimes(options, say)
    rows = []
    for name, config in options.choose(SEGMENTING).items():
        for size in SMALL_SIZES if options.small else SIZES:
            rows.append(row := measure(name, config, size, options.device))
            rates = ", ".join(
                f"{ending} {row['eager'][ending]:.1f} → {row['optimised'][ending]:.1f}" for ending in ENDINGS
            )
            say(f"{name:20} {size[0]}×{size[1]}  images/s with {rates}; logits differ by {row['difference']:.1e}")
    on_gpu = "batch norm, sum and ReLU in one pass, bfloat16, channels-last, a CUDA graph"
    notes = [
        f"eager is PyTorch as it comes (TF32 on a GPU). optimised: {'channels-last' if options.small else on_gpu}. "
        "One image after another, without overlap, already on the device; random weights.",
        "with loss: the cross-entropy at full resolution is computed, as in the paper. with classes: the most probable "
        "class of each pixel at full resolution.",
    ]
    return Findings([infer_table(rows, ending) for ending in ENDINGS], rows, notes)


@torch.no_grad()
def measure(name: str, config: Model, size: tuple[int, int], device: torch.device, classes: int = 19) -> Result:
    """Images per second with each ending, eager and optimised, and how far the logits of the two are apart."""
    release(device)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1, 3, *size, generator=generator).to(device)
    labels = torch.randint(classes, (1, *size), generator=generator).to(device)
    eager = models.build(config, classes, seed=0).to(device).eval()
    fast = optimise(eager, x)
    row: Result = {"network": name, "size": size, "eager": {}, "optimised": {}}

    def rate(network: Callable[[Tensor], Tensor], end: Ending, prepare: Prepare) -> float:
        return 1000 / milliseconds_apart(prepare(lambda: end(network(x), labels), device), device)

    for ending, end in ENDINGS.items():
        row["eager"][ending] = rate(eager, end, _warm)
        with cudnn_autotune():
            row["optimised"][ending] = rate(fast, end, capture)
    expected, found = eager(x).double(), fast(x).double()
    row["difference"] = float((found - expected).norm() / expected.norm())
    row["ratio"] = {ending: row["optimised"][ending] / row["eager"][ending] for ending in ENDINGS}
    row["paper"] = INFERENCE[name].get(size)
    return row


def optimise(model: nn.Module, example: Tensor) -> Callable[[Tensor], Tensor]:
    """Logits of the same network: on a GPU by fused norms in half precision, on a CPU channels last."""
    if not example.is_cuda:
        return deepcopy(model).to(memory_format=torch.channels_last)
    from oneway.models.fuse import for_prediction

    fast = for_prediction(deepcopy(model))

    def logits(x: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return fast(x)

    return logits


def capture(call: Callable[[], Tensor], device: torch.device) -> Callable[[], object]:
    """The call as a CUDA graph of one launch; on a CPU, the call itself."""
    if device.type != "cuda":
        return _warm(call, device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        _warm(call, device)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph.replay


def _warm(call: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    for _ in range(WARM_UP):
        call()
    synchronise(device)
    return call


def infer_table(rows: list[Result], ending: str) -> Table:
    """Our images per second beside the paper's."""
    columns = {
        "network": "{network}",
        "size": "{size[0]}×{size[1]}",
        "eager": f"{{eager[{ending}]:,.1f}}",
        "optimised": f"{{optimised[{ending}]:,.1f}}",
        "ratio": f"{{ratio[{ending}]:.2f}}×",
        "paper, A4500": "{paper:,.1f}" if ending == "loss" else NOTHING,
    }
    return table_of(f"Images per second with {ending}, batch 1", rows, columns, texts=2)
