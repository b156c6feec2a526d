"""Benchmarks: each measures what the paper's tables show, against a baseline named and measured in the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from oneway.common import words
from oneway.common.errors import UserError, unknown
from oneway.runs.atomic import write_json
from oneway.runs.environment import environment
from oneway.tools.bench.data import bench_data
from oneway.tools.bench.findings import Findings, Options
from oneway.tools.bench.infer import bench_infer
from oneway.tools.bench.memory import bench_memory
from oneway.tools.bench.params import bench_params
from oneway.tools.bench.step import bench_step
from oneway.tools.bench.timing import tf32_allowed

__all__ = ["BENCHES", "Bench", "Options", "bench"]


@dataclass(frozen=True)
class Bench:
    """Something to measure."""

    shows: str
    run: Callable[[Options, Callable[[str], None]], Findings]
    """With options, and a function that is told about every measurement."""


BENCHES: dict[str, Bench] = {
    "params": Bench("numbers of parameters, beside those of the paper", bench_params),
    "step": Bench("time and memory of one training iteration, against plain PyTorch", bench_step),
    "memory": Bench("memory during and after each line of Algorithm 1, one-way and two-way", bench_memory),
    "infer": Bench("images per second, batch 1, optimised against eager", bench_infer),
    "data": Bench("whether the data keep up with the device: resident and streamed", bench_data),
}


def bench(name: str, options: Options, file: Path | None, console: Console) -> None:
    """Runs a benchmark by its name, prints what it found, and writes it to a JSON file if one is asked for."""
    _refuse(name, options, file)
    say = partial(words.say, console)
    about = environment(options.device)
    say(f"{about['hardware']}, PyTorch {about['versions']['torch']}")
    if options.small and name != "params":
        say("No GPU here: a small size on the CPU, to show that it runs. On a GPU, ratios are others.")
    with tf32_allowed(options.device):
        findings = BENCHES[name].run(options, say)
    for table in findings.tables:
        console.print(table)
    for note in findings.notes:
        say(note)
    if file is not None:
        content = {"bench": name, "small": options.small, "environment": about, "results": findings.results}
        write_json(file, content)
        say(f"JSON: {file}")


def _refuse(name: str, options: Options, file: Path | None) -> None:
    """Says what cannot be done before minutes are spent on the rest."""
    if name not in BENCHES:
        raise unknown("benchmark", name, BENCHES)
    if options.profile and name != "step":
        raise UserError(f"--profile: tells where the time of a step goes; it is for `bench step`, not `bench {name}`.")
    if options.figure is not None and name != "memory":
        raise UserError(f"--figure: is drawn by `bench memory`, not by `bench {name}`.")
    for path in (file, options.figure):
        if path is not None and not path.parent.is_dir():
            raise UserError(f"{path}: there is no folder {path.parent}. Make it first, or choose another file.")
