"""`oneway bench step`: time and memory of one training iteration, by this engine and by plain PyTorch."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Literal

import torch
from rich.table import Table

from oneway.common.words import first_line
from oneway.draws import draw, on_device
from oneway.engine.capture import WARM_UP
from oneway.engine.step import step
from oneway.engine.store import Store
from oneway.tools.bench import cases
from oneway.tools.bench.cases import Case, Engine
from oneway.tools.bench.findings import Findings, Options, Result, Say, number, ratio, table, times
from oneway.tools.bench.paper import TRAINING
from oneway.tools.bench.profile import KINDS, OTHER, Work, count_work, milliseconds_by_kind
from oneway.tools.bench.timing import MIB, Rates, milliseconds, rates, release, synchronise


def bench_step(options: Options, say: Say) -> Findings:
    """Measure every case by every setup and engine."""
    found = rates(options.device) if options.profile else None
    chosen = options.choose(cases.training_cases(options.small) | cases.compared_cases(options.small))
    rows = [row for case in chosen.values() for row in measure_case(case, options.device, found, say)]
    tables = [compared_table(rows, "ms"), *([] if options.small else [compared_table(rows, "MiB")])]
    if found is not None:
        floors = f"{found.flops / 1e12:.2g} TFLOP/s and {found.bytes / 1e9:.3g} GB/s, both measured"
        tables += [profile_table([row for row in rows if row["case"] == name], floors) for name in chosen]
    notes = [
        "Batches of " + ", ".join(f"{case.batch} for {name}" for name, case in chosen.items()) + ".",
        "oneway is this engine; plain is PyTorch as it comes: eager, TF32, contiguous, losses at full resolution. "
        "÷ sup.: over oneway's own supervised iteration of the same case. "
        "paper: an RTX A4500, loading included, over its own supervised iteration. "
        f"one pass: {cases.SETUPS['one pass'][0]}, the default method.",
    ]
    if "dlv3p-720" in chosen:
        notes.append("The paper's time for cac is what it takes at least, estimated on an A100.")
    if options.small:
        notes.append(
            "On a CPU the engine is plain PyTorch, but for `streets` in half precision where the processor has that; "
            "memory is not counted: see `oneway bench memory`."
        )
    return Findings(tables, {"rates": found and found._asdict(), "rows": rows}, notes)


def measure_case(case: Case, device: torch.device, found: Rates | None, say: Say) -> list[Result]:
    """The rows of a case, its supervised one first: that is what the others are compared with.

    What each engine measured is under its name in a row, or None.
    """
    store, rows = Store.hold(cases.random_samples(case), device), []
    for setup in case.setups:
        theirs = TRAINING.get((case.name, setup))
        row: Result = {"case": case.name, "batch": case.batch, "setup": setup, "oneway": None, "plain": None}
        row |= {"paper": theirs and theirs._asdict(), "work": None, "floors": None}
        for engine in cases.engines(case, device):
            name = f"{case.name:12} {setup:13} {engine:7}"
            try:
                row[engine] = measured = measure(case, setup, engine, store, profiled=found is not None)
                memory = "" if measured["peak_mib"] is None else f"  {measured['peak_mib']:6.0f} MiB"
                ready = f"ready after {measured['start_seconds']:.1f} s"
                say(f"{name} {measured['milliseconds']:8.2f} ms{memory}  {ready}")
            except (torch.OutOfMemoryError, cases.CannotCapture) as error:
                say(f"{name} not measured: {first_line(error)}")
        if found is not None and row["oneway"] is not None:
            work = count_work_of_step(case, setup, store)
            row |= {"work": asdict(work), "floors": work.milliseconds(found, device)}
        rows.append(row)
    return rows


def measure(case: Case, setup: str, engine: Engine, store: Store, profiled: bool = False) -> Result:
    """Build what a run would start with, warm it up, and time it."""
    device = store.pixels.device
    on_gpu = device.type == "cuda"
    release(device)
    before = torch.cuda.memory_allocated(device) if on_gpu else 0

    began = time.perf_counter()
    config = cases.configured(case, setup, engine)
    state = cases.fresh_state(config, case.classes, device)
    advance, draws = cases.make_iteration(state, config, store), cases.random_draws(case, setup, state.student)

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
    return {
        "milliseconds": milliseconds(iterate, device),
        "start_seconds": start_seconds,  # until iterations take their usual time
        # Most allocated at once, the images apart; and taken from the device, with them and what is kept for later.
        "peak_mib": (torch.cuda.max_memory_allocated(device) - before) / MIB if on_gpu else None,
        "reserved_mib": torch.cuda.max_memory_reserved(device) / MIB if on_gpu else None,
        "kinds": milliseconds_by_kind(iterate, device) if profiled else None,
    }


def count_work_of_step(case: Case, setup: str, store: Store) -> Work:
    """The least work of an iteration; counted in an ordinary step, since a captured one hides its operations."""
    device = store.pixels.device
    release(device)
    config = cases.configured(case, setup, "oneway")
    state = cases.fresh_state(config, case.classes, device)
    draws = on_device(draw(cases.random_plan(case, setup, state.student), 0), device)
    return count_work(lambda: step(state, store, draws, config), state.student, state.teacher)


def compared_table(rows: list[Result], unit: Literal["ms", "MiB"]) -> Table:
    """Columns: ours, plain PyTorch's, their ratio, ours over our supervised one, and the paper's two numbers."""
    what, key, decimals = {"ms": ("Time", "milliseconds", 2), "MiB": ("Peak memory", "peak_mib", 0)}[unit]
    papers = {place: theirs.milliseconds if unit == "ms" else theirs.mib for place, theirs in TRAINING.items()}
    ours = {(row["case"], row["setup"]): _of(row, "oneway", key) for row in rows}
    shown: list[tuple[str, ...] | None] = []
    for row in rows:
        place, baseline = (row["case"], row["setup"]), (row["case"], "supervised")
        if shown and shown[-1] is not None and shown[-1][0] != row["case"]:
            shown.append(None)
        plain, paper = _of(row, "plain", key), papers.get(place)
        shown.append(
            (
                *place,
                number(ours[place], decimals),
                number(plain, decimals),
                times(ratio(plain, ours[place])),
                times(ratio(ours[place], ours.get(baseline))),
                number(paper, 0),
                times(ratio(paper, papers.get(baseline))),
                number(_of(row, "oneway", "start_seconds") if unit == "ms" else None),
            )
        )
    headings = (unit, f"plain {unit}", "plain / ours", "÷ sup.", f"paper {unit}", "÷ sup.", "ready after s")
    return table(f"{what} of one training iteration", ("case", "setup", *headings), shown, texts=2)


def profile_table(rows: list[Result], floors: str) -> Table:
    """One case: a row for each kind of kernel and for the two floors, a column for each setup and engine."""
    measured = [(row, engine) for row in rows for engine in ("oneway", "plain") if row[engine] is not None]
    kinds = [row[engine]["kinds"] for row, engine in measured]
    shown = [
        *((kind, *(number(spent[kind], 2) for spent in kinds)) for kind in (*KINDS, OTHER)),
        None,
        ("all kernels", *(number(sum(spent.values()), 2) for spent in kinds)),
        ("least, by arithmetic", *(number(_of(row, "floors", "arithmetic_ms"), 2) for row, _ in measured)),
        ("least, by bytes", *(number(_of(row, "floors", "bytes_ms"), 2) for row, _ in measured)),
    ]
    headings = ("milliseconds in", *(f"{row['setup']} {engine}" for row, engine in measured))
    return table(f"{rows[0]['case']}: where the time goes; least at {floors}", headings, shown)


def _of(row: Result, part: str, key: str) -> float | None:
    return None if row[part] is None else row[part][key]
