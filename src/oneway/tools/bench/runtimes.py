"""`oneway bench infer --runtime`: images per second on the CPU by the runtimes that exported files are for."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

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


class Runtime(NamedTuple):
    """Who computes, and how."""

    format: Onnx | None  # None: PyTorch itself
    int8: bool = False


RUNTIMES: dict[str, Runtime] = {
    "pytorch": Runtime(None),
    "onnxruntime": Runtime(Onnx()),
    "openvino": Runtime(OpenVino()),
    "onnxruntime-int8": Runtime(Onnx(), int8=True),
    "openvino-int8": Runtime(OpenVino(), int8=True),
}


def bench_runtimes(options: Options, say: Say) -> Findings:
    """Measures every network that segments by the runtimes asked for, in turn, beside PyTorch."""
    runtimes = choose_runtimes(options.runtimes, say)
    rows = []
    for name, config in options.choose(SEGMENTING).items():
        rows.append(row := measure(name, config, runtimes))
        say(
            f"{name:20} images/s: "
            + ", ".join(f"{runtime} {rate:.1f}" for runtime, rate in row["images_per_second"].items())
        )
    notes = [
        "Files as `oneway export` writes them, in single precision or INT8, and the most probable class of each pixel; "
        f"random weights. One image after another, the runtimes in turn, median of {ROUNDS} rounds. "
        "Ratios: how many times as fast as PyTorch. CPU time is of all threads; on a busy computer, trust it alone.",
    ]
    return Findings([runtime_table(rows)], rows, notes)


def choose_runtimes(names: tuple[str, ...], say: Say) -> dict[str, Runtime]:
    """Those asked for that are installed, PyTorch first; says which are not."""
    for name in names:
        if name not in RUNTIMES:
            raise unknown("runtime", name, RUNTIMES)
    chosen = {"pytorch": RUNTIMES["pytorch"]}
    for name, runtime in RUNTIMES.items():
        if name in names and runtime.format:
            try:
                runtime.format.require()
                chosen[name] = runtime
            except UserError as error:
                say(f"{name}: left out. {error}")
    if len(chosen) == 1 and tuple(names) != ("pytorch",):
        raise UserError("--runtime: none of these is installed, and there is nothing to compare PyTorch with.")
    return chosen


@torch.inference_mode()
def measure(name: str, config: Model, runtimes: dict[str, Runtime]) -> Result:
    """Images per second of each, and the share of pixels that have the class that PyTorch gives them."""
    network = models.build(config, CLASSES, seed=0).eval()
    height, width = size = TIMED_SIZES[False]
    image = torch.from_numpy(render(0, 0, height, width)[0])[None]
    with tempfile.TemporaryDirectory() as folder:
        calls = open_all(network, runtimes, size, Path(folder))
        expected = calls["pytorch"](image)
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


def open_all(network: nn.Module, runtimes: dict[str, Runtime], size: tuple[int, int], folder: Path) -> dict[str, Call]:
    """The network as a function of bytes, by each runtime."""
    formats = [runtime for runtime in runtimes.values() if runtime.format]
    graphs = {False: make_onnx(network, "labels")} if formats else {}
    if any(runtime.int8 for runtime in formats):
        images = [np.asarray(render(1, index, *size)[0])[None] for index in range(CALIBRATION_IMAGES)]
        graphs[True] = quantise(graphs[False], images)
    calls: dict[str, Call] = {}
    for name, runtime in runtimes.items():
        if runtime.format is None:
            calls[name] = partial(predict_bytes, network)
        else:
            path = folder / f"{name}{runtime.format.suffix}"
            runtime.format.save(graphs[runtime.int8], path, {})
            calls[name] = runtime.format.open(path).result
    return calls


def runtime_table(rows: list[Result]) -> Table:
    """A line for each runtime, and its ratios to PyTorch."""
    shown: list[tuple[str, ...] | None] = []
    for row in rows:
        rates, cpu = row["images_per_second"], row["cpu_ms"]
        for name in rates:
            faster, cheaper = ratio(rates[name], rates["pytorch"]), ratio(cpu["pytorch"], cpu[name])
            same = f"{100 * row['same_class'][name]:.2f} %"
            shown.append(
                (row["network"], name, number(rates[name]), times(faster), number(cpu[name]), times(cheaper), same)
            )
        shown.append(None)
    headings = ("network", "runtime", "images/s", "ratio", "CPU ms", "ratio", "same class")
    height, width = TIMED_SIZES[False]
    return table(f"By the clock and in CPU time, {height}×{width}, batch 1", headings, shown[:-1], texts=2)
