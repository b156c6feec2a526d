"""Whether several small runs train faster side by side on one GPU than one after another.

    python benchmarks/side_by_side.py --out side-by-side.json [--case rn18-352 wrn-32] [--processes 1 2 3 5]

Each process captures the step of `oneway bench step` and replays it; all begin at once. Iterations per second are
those of all processes together. Processes of one GPU take turns, unless NVIDIA's multi-process service lets their
kernels overlap: measure with and without `nvidia-cuda-mps-control -d`.
"""

from __future__ import annotations

import argparse
import json
import time
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch

from oneway.draws import draw
from oneway.engine.capture import WARM_UP
from oneway.engine.store import Store
from oneway.runs.environment import environment
from oneway.tools.bench.cases import (
    configured,
    fresh_state,
    make_iteration,
    random_plan,
    random_samples,
    training_cases,
)

ITERATIONS = 300


def seconds(case_name: str, setup: str, together: Barrier) -> float:
    """Of `ITERATIONS` steps, from when all processes are ready."""
    device = torch.device("cuda")
    case = training_cases(small=False)[case_name]
    config, plan = configured(case, setup, "oneway"), random_plan(case)
    store = Store.hold(random_samples(case), device)
    advance = make_iteration(fresh_state(config, case.classes, device), config, store)
    tables = [draw(plan, iteration) for iteration in range(8)]
    for iteration in range(WARM_UP + 2):
        advance(tables[iteration % 8])
    torch.cuda.synchronize()
    together.wait()
    began = time.perf_counter()
    for iteration in range(ITERATIONS):
        advance(tables[iteration % 8])
    torch.cuda.synchronize()
    return time.perf_counter() - began


def rate(case: str, setup: str, processes: int) -> float:
    """Iterations per second of all processes together."""
    spawn = get_context("spawn")
    with spawn.Manager() as manager, spawn.Pool(processes) as pool:
        together = manager.Barrier(processes)
        times = pool.starmap(seconds, [(case, setup, together)] * processes, chunksize=1)
    return processes * ITERATIONS / max(times)


def main() -> None:
    """Prints and writes the rates."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, required=True, help="JSON file")
    arguments.add_argument("--case", nargs="+", default=["rn18-352", "wrn-32"])
    arguments.add_argument("--setup", default="simple-phtps")
    arguments.add_argument("--processes", nargs="+", type=int, default=[1, 2, 3, 5])
    asked = arguments.parse_args()
    rates: dict[str, dict[int, float]] = {}
    for case in asked.case:
        rates[case] = {}
        for processes in asked.processes:
            rates[case][processes] = rate(case, asked.setup, processes)
            gain = rates[case][processes] / rates[case][asked.processes[0]]
            print(f"{case:9} {processes} at once: {rates[case][processes]:6.1f} iterations/s, {gain:.2f} ×", flush=True)
    results = {"environment": environment(torch.device("cuda")), "setup": asked.setup, "iterations_per_second": rates}
    asked.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
