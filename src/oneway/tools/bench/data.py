"""`oneway bench data`: whether the images are there when the device wants them, resident or streamed."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import repeat

import torch
from rich.table import Table

from oneway.data.dataset import Samples
from oneway.draws import Plan
from oneway.engine.capture import WARM_UP
from oneway.engine.feed import Feed, resident, streamed
from oneway.tools.bench.cases import (
    Case,
    configured,
    fresh_state,
    make_iteration,
    random_draws,
    random_plan,
    random_samples,
    training_cases,
)
from oneway.tools.bench.findings import Findings, Options, Result, Say, number, table, times
from oneway.tools.bench.timing import milliseconds, release, synchronise

FEEDS: dict[str, Callable[[Samples, Plan, torch.device], Feed]] = {"resident": resident, "streamed": streamed}
SETUP = "simple-phtps"


def bench_data(options: Options, say: Say) -> Findings:
    """Measures every case by both feeds."""
    rows: list[Result] = []
    for case in options.choose(training_cases(options.small)).values():
        samples = random_samples(case)
        for name in FEEDS:
            rows.append(row := measure(case, name, samples, options.device))
            say(
                f"{case.name:9} {name:9} gives {row['images_per_second']:9,.0f} images/s, the step takes "
                f"{row['step_images_per_second']:9,.0f}; busy {row['busy']:.0%}, {row['cores']:.1f} CPU cores"
            )
    notes = [
        f"The step is {SETUP}. the feed alone: nothing else to do. the step alone: draws and images ready beforehand, "
        "the baseline of ÷. busy: the part of the loop's wall time that the same steps take alone.",
        "The images lie in the computer's memory, as the system keeps a cache that it has read before.",
    ]
    return Findings([data_table(rows)], rows, notes)


def measure(case: Case, feed_name: str, samples: Samples, device: torch.device) -> Result:
    """Images per second of the feed alone, of the step alone, and of both in a loop."""
    release(device)
    iterations = 100 if device.type == "cuda" else 4
    plan, config = random_plan(case), configured(case, SETUP, "oneway")
    images = plan.batch_labelled + plan.batch_unlabelled
    fed = FEEDS[feed_name](samples, plan, device)
    seconds_fed, _ = _seconds(fed.draws, iterations, device)

    advance = make_iteration(fresh_state(config, case.classes, device), config, fed.store)
    ready = fed.draws(0)
    for _ in range(WARM_UP + 2 if device.type == "cuda" else 1):
        advance(ready)
    # A window holds one batch, so its draws stay the same.
    draws = random_draws(case) if feed_name == "resident" else repeat(ready)
    seconds_of_step = milliseconds(lambda: advance(next(draws)), device) / 1000
    seconds_of_loop, cores = _seconds(lambda iteration: advance(fed.draws(iteration)), iterations, device)
    return {
        "case": case.name,
        "batch": case.batch,
        "feed": feed_name,
        "place": fed.place,
        "images_per_second": images / seconds_fed,
        "step_images_per_second": images / seconds_of_step,
        "loop_images_per_second": images / seconds_of_loop,
        "step_ms": 1000 * seconds_of_step,
        "loop_ms": 1000 * seconds_of_loop,
        "busy": min(1.0, seconds_of_step / seconds_of_loop),
        "cores": cores,
    }


def _seconds(call: Callable[[int], object], iterations: int, device: torch.device) -> tuple[float, float]:
    """Wall time of one of so many calls in a row, and the CPU cores that were busy meanwhile."""
    call(0)
    synchronise(device)
    wall, processor = time.perf_counter(), time.process_time()
    for iteration in range(1, iterations + 1):
        call(iteration)
    synchronise(device)
    elapsed = time.perf_counter() - wall
    return elapsed / iterations, (time.process_time() - processor) / elapsed


def data_table(rows: list[Result]) -> Table:
    """Ours against what the step needs."""
    rates = ("images/s of the feed alone", "of the step alone", "÷")
    headings = ("case", "batch", "feed", *rates, "loop ms", "busy", "CPU cores")
    shown = [
        (
            row["case"],
            row["batch"],
            row["feed"],
            number(row["images_per_second"], 0),
            number(row["step_images_per_second"], 0),
            times(row["images_per_second"] / row["step_images_per_second"]),
            number(row["loop_ms"], 2),
            f"{row['busy']:.0%}",
            number(row["cores"]),
        )
        for row in rows
    ]
    return table("Feeding the step", headings, shown, texts=3)
