"""Runs a benchmark by its name, and prints or writes what it found."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from oneway.common import words
from oneway.common.console import print_result
from oneway.common.errors import UserError, unknown
from oneway.runs.atomic import write_json
from oneway.runs.environment import environment
from oneway.tools.bench.data import bench_data
from oneway.tools.bench.findings import Findings, Options, Say
from oneway.tools.bench.infer import bench_infer
from oneway.tools.bench.memory import bench_memory
from oneway.tools.bench.params import bench_params
from oneway.tools.bench.predict import bench_predict
from oneway.tools.bench.ranks import bench_ranks
from oneway.tools.bench.start import bench_start
from oneway.tools.bench.step import bench_step
from oneway.tools.bench.timing import tf32_allowed


@dataclass(frozen=True)
class Bench:
    """A benchmark."""

    shows: str
    run: Callable[[Options, Say], Findings]
    """Measures, given options and a function that prints each measurement as soon as it is there."""


BENCHES: dict[str, Bench] = {
    "params": Bench("numbers of parameters, beside those of the paper", bench_params),
    "step": Bench("time and memory of one training iteration, against plain PyTorch", bench_step),
    "memory": Bench("memory during and after each line of Algorithm 1, one-way and two-way", bench_memory),
    "infer": Bench("images per second, batch 1, optimised against eager; or by other runtimes on the CPU", bench_infer),
    "predict": Bench("files per second from JPEGs to masks and overlays, against each stage alone", bench_predict),
    "start": Bench("what is waited for around the work itself, verb by verb and part by part", bench_start),
    "data": Bench("whether the data keep up with the device: resident, streamed, and of a pool", bench_data),
    "ranks": Bench("what exchanges between processes cost a step, with and without; a model of many", bench_ranks),
}


def bench(name: str, options: Options, console: Console, out: Path | None = None, as_json: bool = False) -> None:
    """Run a benchmark by its name, and print what it found; into `out`, that goes as JSON.

    With `as_json`, the standard output has JSON in place of tables, and the console must not be there.
    """
    _refuse(name, options, out)
    if int(os.environ.get("RANK", 0)) > 0:  # the first of several processes speaks for all
        console, out, as_json = Console(quiet=True), None, False
    say = partial(words.say, console)
    about = environment(options.device)
    say(f"{about['hardware']}, PyTorch {about['versions']['torch']}")
    if options.small and name != "params":
        say("On the CPU, sizes are small, to show that it runs. On a GPU, the ratios are different.")
    with tf32_allowed(options.device):
        findings = BENCHES[name].run(options, say)
    content = {"bench": name, "small": options.small, "environment": about, "results": findings.results}
    if as_json:
        print_result(json.dumps(content, indent=1, allow_nan=False))
    else:
        for table in findings.tables:
            console.print(table)
        for note in findings.notes:
            say(note)
    if out is not None:
        write_json(out, content)
        say(f"Results: {out}")


def _refuse(name: str, options: Options, out: Path | None) -> None:
    """Refuse what cannot be done, before minutes are spent on measuring."""
    if name not in BENCHES:
        raise unknown("benchmark", name, BENCHES)
    if options.profile and name != "step":
        raise UserError(f"--profile: shows where the time of a step goes, with `bench step` and not `bench {name}`.")
    if options.figure is not None and name != "memory":
        raise UserError(f"--figure: only `bench memory` draws one, not `bench {name}`.")
    if options.runtimes and name != "infer":
        raise UserError(f"--runtime: compares runtimes with `bench infer`, not `bench {name}`.")
    for path in (out, options.figure):
        if path is not None and not path.parent.is_dir():
            raise UserError(f"{path}: there is no folder {path.parent}. Make it first, or choose another file.")
