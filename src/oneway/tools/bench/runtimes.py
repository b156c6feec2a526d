"""`oneway bench infer --runtime`: images per second on the CPU by the runtimes that exported files are for."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from rich.table import Table
from torch import nn

from oneway import models
from oneway.common.errors import UserError, unknown
from oneway.config import Model
from oneway.data.streets import render
from oneway.tools.bench.findings import Findings, Options, Result, Say, number, ratio, table, times
from oneway.tools.bench.params import SEGMENTING
from oneway.tools.export.command import TIMED_SIZES, predict_bytes
from oneway.tools.export.formats import Call, Onnx, OpenVino, make_onnx
from oneway.tools.export.int8 import quantise

ROUNDS = 7
CLASSES = 19
CALIBRATION_IMAGES = 2
PYTORCH = "pytorch"


RUNTIMES: dict[str, tuple[Onnx, bool]] = {
    "onnxruntime": (Onnx(), False),
    "openvino": (OpenVino(), False),
    "onnxruntime-int8": (Onnx(), True),
    "openvino-int8": (OpenVino(), True),
}
"""Beside PyTorch: who computes, and whether in INT8."""


def bench_runtimes(options: Options, say: Say) -> Findings:
    """Measure every network that segments by the runtimes asked for, in turn, beside PyTorch."""
    runtimes = choose_runtimes(options.runtimes, say)
    rows = []
    for name, config in options.choose(SEGMENTING).items():
        rows.append(row := measure(name, config, runtimes))
        rates = ", ".join(f"{runtime} {rate:.1f}" for runtime, rate in row["images_per_second"].items())
        say(f"{name:20} images/s: {rates}")
    notes = [
        "Files as `oneway export` writes them, in single precision or INT8, and the most probable class of each pixel; "
        f"random weights. One image after another, the runtimes in turn, median of {ROUNDS} rounds. "
        "Ratios: how many times as fast as PyTorch. CPU time is of all threads; on a busy computer, trust it alone.",
    ]
    return Findings([runtime_table(rows)], rows, notes)


def choose_runtimes(names: tuple[str, ...], say: Say) -> list[str]:
    """The runtimes asked for beside PyTorch that are installed; says which are not."""
    for name in names:
        if name not in (known := (PYTORCH, *RUNTIMES)):
            raise unknown("runtime", name, known)
    chosen = []
    for name in dict.fromkeys(name for name in names if name != PYTORCH):
        try:
            RUNTIMES[name][0].require()
            chosen.append(name)
        except UserError as error:
            say(f"{name}: left out. {error}")
    if not chosen and {*names} != {PYTORCH}:
        raise UserError("--runtime: none of these is installed, and there is nothing to compare PyTorch with.")
    return chosen


@torch.inference_mode()
def measure(name: str, config: Model, runtimes: list[str]) -> Result:
    """Images per second of each, and the share of pixels that have the class that PyTorch gives them."""
    network = models.build(config, CLASSES, seed=0).eval()
    height, width = size = TIMED_SIZES[False]
    image = torch.from_numpy(render(0, 0, height, width)[0])[None]
    with tempfile.TemporaryDirectory() as folder:
        calls = open_all(network, runtimes, size, Path(folder))
        expected = calls[PYTORCH](image)
        same = {runtime: float((call(image) == expected).float().mean()) for runtime, call in calls.items()}
        spent: dict[str, list[tuple[float, float]]] = {runtime: [] for runtime in calls}
        for _ in range(ROUNDS):
            for runtime, call in calls.items():
                began, idle = time.perf_counter(), time.process_time()
                call(image)
                spent[runtime].append((time.perf_counter() - began, time.process_time() - idle))
    rates = {runtime: 1 / median(wall for wall, _ in rounds) for runtime, rounds in spent.items()}
    cpu = {runtime: 1000 * median(busy for _, busy in rounds) for runtime, rounds in spent.items()}
    return {"network": name, "size": size, "images_per_second": rates, "cpu_ms": cpu, "same_class": same}


def open_all(network: nn.Module, runtimes: list[str], size: tuple[int, int], folder: Path) -> dict[str, Call]:
    """The network as a function of bytes, by PyTorch and by each runtime."""
    calls: dict[str, Call] = {PYTORCH: partial(predict_bytes, network)}
    graphs = {False: make_onnx(network, "labels")} if runtimes else {}
    if any(RUNTIMES[name][1] for name in runtimes):
        images = [np.asarray(render(1, index, *size)[0])[None] for index in range(CALIBRATION_IMAGES)]
        graphs[True] = quantise(graphs[False], images)
    for name in runtimes:
        format, int8 = RUNTIMES[name]
        path = folder / f"{name}{format.suffix}"
        format.save(graphs[int8], path, {})
        calls[name] = format.open(path).result
    return calls


def runtime_table(rows: list[Result]) -> Table:
    """A line for each runtime, and its ratios to PyTorch."""
    shown: list[tuple[str, ...] | None] = []
    for row in rows:
        rates, cpu = row["images_per_second"], row["cpu_ms"]
        for name in rates:
            faster, cheaper = ratio(rates[name], rates[PYTORCH]), ratio(cpu[PYTORCH], cpu[name])
            same = f"{100 * row['same_class'][name]:.2f} %"
            shown.append(
                (row["network"], name, number(rates[name]), times(faster), number(cpu[name]), times(cheaper), same)
            )
        shown.append(None)
    headings = ("network", "runtime", "images/s", "ratio", "CPU ms", "ratio", "same class")
    height, width = TIMED_SIZES[False]
    return table(f"By the clock and in CPU time, {height}×{width}, batch 1", headings, shown[:-1], texts=2)
