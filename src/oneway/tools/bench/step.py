"""`oneway bench step`: time and memory of one training iteration, by this engine and by plain PyTorch."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any

import torch

from oneway.draws import draw
from oneway.engine.capture import WARM_UP
from oneway.engine.step import step
from oneway.engine.store import Store
from oneway.tools.bench.cases import (
    SETUPS,
    CannotCapture,
    Case,
    Engine,
    configured,
    engines,
    fresh_state,
    make_iteration,
    random_plan,
    random_samples,
    training_cases,
)
from oneway.tools.bench.findings import Findings, Options, Result, Say
from oneway.tools.bench.floors import Work, count_work
from oneway.tools.bench.kernels import milliseconds_by_kind
from oneway.tools.bench.paper import TRAINING
from oneway.tools.bench.step_tables import memory_table, profile_table, time_table
from oneway.tools.bench.timing import MIB, Rates, effort, milliseconds, rates, release, synchronise

TABLES_OF_DRAWS = 8


@dataclass(frozen=True)
class Measurement:
    """One iteration of one setup by one engine."""

    milliseconds: float
    start_seconds: float
    """From building the network until iterations take their usual time."""

    peak_mib: float | None
    """Most memory allocated at once, the images apart; None on a CPU, which does not count it."""

    reserved_mib: float | None
    """Most memory taken from the device, with the images and with what is kept for later use."""

    kinds: dict[str, float] | None = None
    """Milliseconds in kernels of each kind."""


def bench_step(options: Options, say: Say) -> Findings:
    """Measures every case by every setup and engine."""
    found = rates(options.device) if options.profile else None
    cases = options.choose(training_cases(options.small))
    rows = [row for case in cases.values() for row in measure_case(case, options.device, found, say)]
    tables = [time_table(rows), *([] if options.small else [memory_table(rows)])]
    if found is not None:
        floors = f"{found.flops / 1e12:.2g} TFLOP/s and {found.bytes / 1e9:.3g} GB/s, both measured"
        tables += [profile_table([row for row in rows if row["case"] == name], floors) for name in cases]
    notes = [
        "Batches of " + ", ".join(f"{case.batch} for {name}" for name, case in cases.items()) + ".",
        "oneway is this engine; plain is PyTorch as it comes: eager, TF32, contiguous, losses at full resolution. "
        "÷ sup.: over oneway's own supervised iteration of the same case. "
        "paper: an RTX A4500, loading included, over its own supervised iteration.",
    ]
    if options.small:
        notes.append("On a CPU the engine is plain PyTorch, and memory is not counted: see `oneway bench memory`.")
    return Findings(tables, {"rates": found and found._asdict(), "rows": rows}, notes)


def measure_case(case: Case, device: torch.device, found: Rates | None, say: Say) -> list[Result]:
    """The rows of a case, its supervised one first: that is what the others are compared with."""
    store, rows = Store.hold(random_samples(case), device), []
    for setup in SETUPS:
        by_engine: dict[Engine, Measurement | None] = {"oneway": None, "plain": None}
        for engine in engines(device):
            name = f"{case.name:9} {setup:13} {engine:7}"
            try:
                by_engine[engine] = measured = measure(case, setup, engine, store, profiled=found is not None)
                say(f"{name} {_to_text(measured)}")
            except (torch.OutOfMemoryError, CannotCapture) as error:
                say(f"{name} not measured: {str(error).splitlines()[0]}")
        work = count_work_of_step(case, setup, store) if found is not None and by_engine["oneway"] is not None else None
        theirs = TRAINING.get((case.name, setup))
        rows.append(
            {
                "case": case.name,
                "batch": case.batch,
                "setup": setup,
                "oneway": _as_json(by_engine["oneway"]),
                "plain": _as_json(by_engine["plain"]),
                "paper": None if theirs is None else theirs._asdict(),
                "work": _as_json(work),
                "floors": work.milliseconds(found, device) if found is not None and work is not None else None,
            }
        )
    return rows


def _as_json(found: Measurement | Work | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def measure(case: Case, setup: str, engine: Engine, store: Store, profiled: bool = False) -> Measurement:
    """Builds what a run would start with, warms it up, and times it."""
    device = store.pixels.device
    on_gpu = device.type == "cuda"
    release(device)
    before = torch.cuda.memory_allocated(device) if on_gpu else 0
    draws = cycle([draw(random_plan(case), iteration) for iteration in range(TABLES_OF_DRAWS)])

    began = time.perf_counter()
    config = configured(case, setup, engine)
    advance = make_iteration(fresh_state(config, case.classes, device), config, store)

    def iterate() -> object:
        return advance(next(draws))

    for _ in range(WARM_UP if on_gpu else 1):
        iterate()
    synchronise(device)
    if on_gpu:
        # Algorithms that were tried may have asked for more than the chosen ones.
        torch.cuda.reset_peak_memory_stats(device)
        iterate()  # captured here
        iterate()
        synchronise(device)
    start_seconds = time.perf_counter() - began
    return Measurement(
        milliseconds(iterate, device, effort(device)),
        start_seconds,
        (torch.cuda.max_memory_allocated(device) - before) / MIB if on_gpu else None,
        torch.cuda.max_memory_reserved(device) / MIB if on_gpu else None,
        milliseconds_by_kind(iterate, device) if profiled else None,
    )


def count_work_of_step(case: Case, setup: str, store: Store) -> Work:
    """What an iteration has to do at least; counted in an ordinary step, since a captured one hides its operations."""
    device = store.pixels.device
    release(device)
    config = configured(case, setup, "oneway")
    state = fresh_state(config, case.classes, device)
    draws = draw(random_plan(case), 0).to(device)
    return count_work(lambda: step(state, store, draws, config), state.student, state.teacher)


def _to_text(measured: Measurement) -> str:
    memory = "" if measured.peak_mib is None else f"  {measured.peak_mib:6.0f} MiB"
    return f"{measured.milliseconds:8.2f} ms{memory}  ready after {measured.start_seconds:.1f} s"
