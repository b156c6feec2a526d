"""`oneway bench data`: whether the images are there when the device wants them: resident, streamed, or of a pool."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from oneway.config import Config, Data
from oneway.data.dataset import Samples
from oneway.data.pool import Pool, find_pool, open_pool
from oneway.engine.capture import WARM_UP
from oneway.engine.feed import Feed, resident, streamed
from oneway.engine.start import batch_sizes, plan_of
from oneway.tools.bench import cases
from oneway.tools.bench.cases import Case
from oneway.tools.bench.findings import Findings, Options, Result, Say, table_of
from oneway.tools.bench.timing import milliseconds, release, synchronise

FEEDS = ("resident", "streamed", "pool")
SETUP = "simple-phtps"


def bench_data(options: Options, say: Say) -> Findings:
    """Measure every case by every feed."""
    rows: list[Result] = []
    for case in options.choose(cases.training_cases(options.small)).values():
        with TemporaryDirectory() as folder:
            samples = cases.random_samples(case)
            samples = replace(samples, pool=pool_of_photographs(case, Path(folder)) if samples.dense else None)
            for name in FEEDS if samples.dense else FEEDS[:2]:
                rows.append(row := measure(case, name, samples, options.device))
                say(
                    f"{case.name:9} {name:9} gives {row['images_per_second']:9,.0f} images/s, the step takes "
                    f"{row['step_images_per_second']:9,.0f}; busy {row['busy']:.0%}, {row['cores']:.1f} CPU cores"
                )
    notes = [
        f"The step is {SETUP}. the feed alone: nothing else to do. the step alone: draws and images ready beforehand, "
        "the baseline of ÷. busy: the part of the loop's wall time that the same steps take alone.",
        "The images lie in the computer's memory, as the system keeps a cache that it has read before.",
        "pool: those without labels are JPEG files of that size, with 2.2 bits a pixel, read and decoded each time.",
    ]
    return Findings([data_table(rows)], rows, notes)


def measure(case: Case, feed_name: str, samples: Samples, device: torch.device) -> Result:
    """Images per second of the feed alone, of the step alone, and of both in a loop."""
    release(device)
    iterations = 100 if device.type == "cuda" else 4
    config = cases.configured(case, SETUP, "oneway")
    fed, images = open_feed(config, feed_name, samples, device), sum(batch_sizes(config))
    seconds_fed, _ = _seconds(fed.draws, iterations, device)

    advance = cases.make_iteration(cases.fresh_state(config, case.classes, device), config, fed.store)
    ready = fed.draws(0)
    for _ in range(WARM_UP + 2 if device.type == "cuda" else 1):
        advance(ready)
    # A window holds one batch, so its draws stay the same.
    draws = cases.random_draws(case) if feed_name == "resident" else repeat(ready)
    seconds_of_step = milliseconds(lambda: advance(next(draws)), device) / 1000
    seconds_of_loop, cores = _seconds(lambda iteration: advance(fed.draws(iteration)), iterations, device)
    fed.close()
    return {
        "case": case.name,
        "batch": case.batch,
        "feed": feed_name,
        "place": fed.place,
        "images_per_second": images / seconds_fed,
        "step_images_per_second": images / seconds_of_step,
        "loop_images_per_second": images / seconds_of_loop,
        "ratio": seconds_of_step / seconds_fed,
        "step_ms": 1000 * seconds_of_step,
        "loop_ms": 1000 * seconds_of_loop,
        "busy": min(1.0, seconds_of_step / seconds_of_loop),
        "cores": cores,
    }


def open_feed(config: Config, name: str, samples: Samples, device: torch.device) -> Feed:
    """The feed of a case: every image has both roles, as in the paper; with a pool, the unlabelled ones are its."""
    items, pool = range(len(samples)), samples.pool
    if name == "resident":
        return resident(samples, plan_of(config, items, items), device)
    if name == "streamed" or pool is None:
        return streamed(replace(samples, pool=None), plan_of(config, items, items), device, jitter=config.jitter)
    plan = plan_of(config, items, range(len(samples), len(samples) + len(pool)))
    return streamed(samples, plan, device, jitter=config.jitter)


def pool_of_photographs(case: Case, folder: Path) -> Pool:
    """JPEG files of smooth colours with some grain, which take as many bits as photographs."""
    random, (height, width) = np.random.default_rng(0), case.size
    (folder / "photographs").mkdir()
    for which in range(case.images):
        cells = random.integers(256, size=(-(-height // 16), -(-width // 16), 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(cells).resize((width, height), Image.Resampling.BICUBIC))
        grain = 3 * random.standard_normal((height, width, 1), dtype=np.float32)
        image = Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8))
        image.save(folder / "photographs" / f"{which}.jpg", quality=90)
    named = str(folder / "photographs")
    settings = Data(name="folder", unlabelled=named, cache=folder / "cache", pool="always")
    return open_pool(find_pool(named), settings, Console(quiet=True))


def _seconds(call: Callable[[int], object], iterations: int, device: torch.device) -> tuple[float, float]:
    """Seconds of a call, one of so many in a row, and the number of CPU cores that were busy meanwhile."""
    call(0)
    synchronise(device)
    wall, processor = time.perf_counter(), processor_seconds()
    for iteration in range(1, iterations + 1):
        call(iteration)
    synchronise(device)
    elapsed = time.perf_counter() - wall
    return elapsed / iterations, (processor_seconds() - processor) / elapsed


def processor_seconds() -> float:
    """Processor time of this process and, where the system tells, of its children and theirs."""
    parents, seconds, tick = {}, {}, 1 / os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # one that has ended
            fields = stat.read_text().rpartition(")")[2].split()
            process = int(stat.parent.name)
            parents[process], seconds[process] = int(fields[1]), tick * (int(fields[11]) + int(fields[12]))
    family, found = {os.getpid()}, set[int]()
    while family:
        found |= family
        family = {process for process, parent in parents.items() if parent in family} - found
    return time.process_time() + sum(seconds[process] for process in found - {os.getpid()})


def data_table(rows: list[Result]) -> Table:
    """Images per second that our feed gives, against those that the step needs."""
    columns = {
        "case": "{case}",
        "batch": "{batch}",
        "feed": "{feed}",
        "images/s of the feed alone": "{images_per_second:,.0f}",
        "of the step alone": "{step_images_per_second:,.0f}",
        "÷": "{ratio:.2f}×",
        "loop ms": "{loop_ms:,.2f}",
        "busy": "{busy:.0%}",
        "CPU cores": "{cores:.1f}",
    }
    return table_of("Feeding the step", rows, columns, texts=3)
