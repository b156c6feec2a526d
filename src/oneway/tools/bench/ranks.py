"""`oneway bench ranks`: what exchanges between processes cost a step; and a model of many processes.

Every step is measured with exchanges and without. Under torchrun each process measures with its own GPU; a single one,
which has nobody to exchange anything with and trains without, makes a group of itself here. Batches are those of one
process, so that both have the same work.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import torch
from rich.table import Table
from torch import Tensor

from oneway.common.words import counted
from oneway.draws import on_device
from oneway.engine.capture import WARM_UP, choose_step
from oneway.engine.ranks import ALONE, Ranks
from oneway.engine.rendezvous import join
from oneway.engine.step import step
from oneway.engine.store import Store
from oneway.ops import Group, sharing_batches
from oneway.tools.bench.cases import SETUPS, Case, configured, fresh_state, random_draws, random_samples, training_cases
from oneway.tools.bench.findings import Findings, Options, Result, Say, table_of
from oneway.tools.bench.timing import milliseconds, release, synchronise

COMPARED = ("simple-phtps", "one pass")
MOST = 0.9
"""An efficiency worth having."""
ROUNDS = 15
"""How often each of the two is measured, in turns."""


class Network(NamedTuple):
    """What is assumed of the connections between so many GPUs."""

    gpus: int
    microseconds: float
    """Time of an exchange of a few kilobytes."""
    bytes_per_second: float
    """Bandwidth of a ring through all of them, where it is slowest, in each direction."""


NETWORKS = (
    Network(8, 15, 370e9),  # NVLink: 450 GB/s, of which NCCL's protocol leaves about four fifths
    Network(64, 40, 370e9),  # nodes of eight, with an adapter of 400 Gbit/s for each GPU: as many rings side by side
    Network(64, 40, 50e9),  # with one such adapter for each node
)


def bench_ranks(options: Options, say: Say) -> Findings:
    """Measure every case, alone and together in turns."""
    ranks, rows = join_or_found(options.device), []
    device = torch.device(ranks.device(options.device.type))
    with ranks.watching():
        chosen = options.choose(training_cases(options.small)).values()
        for case, setup in ((case, setup) for case in chosen for setup in COMPARED):
            if setup == "one pass" and case.config.data.name == "cifar10":
                continue  # it drops features of a decoder
            rows.append(row := measure(case, setup, ranks, device))
            say(
                f"{case.name:9} {setup:12} without exchanges {row['alone_ms']:.3f} ms, "
                f"with, {counted(ranks.world_size, 'process', 'processes')}: "
                f"{row['together_ms']:.3f} ms ({row['cost']:+.1%})"
            )
    itself = "With: this process exchanges with itself, so that what is left is the work around exchanges. "
    captured = "captured as CUDA graphs" if all(row["captured"] for row in rows) else "not captured"
    assumed = "; ".join(
        f"{each.gpus} GPUs: {each.microseconds:g} µs, {each.bytes_per_second / 1e9:.3g} GB/s each way"
        for each in NETWORKS
    )
    notes = [
        f"one pass: {SETUPS['one pass'][0]}. Batches are those of each process. Without exchanges: each trains by "
        "itself, as one process does, whether torchrun started it or not. "
        f"{itself if ranks.world_size == 1 else ''}Both in turns, "
        f"{len(rows[0]['rounds']['alone'])} times each; {ranks.backend}, {captured}.",
        "The model: t = one process with exchanges + their number · latency + 2 (N − 1)/N · gradients / bandwidth, "
        f"without overlap. {assumed}. µs for {MOST:.0%}: what an exchange may take for that efficiency of "
        f"{NETWORKS[0].gpus}. `torchrun --nproc-per-node N -m oneway bench ranks` measures instead.",
    ]
    return Findings([cost_table(rows), model_table(rows)], rows, notes)


def join_or_found(device: torch.device) -> Ranks:
    """Join the processes that torchrun has started, or make a group of this one alone."""
    if "WORLD_SIZE" not in os.environ:
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    return join(device.type, group_of_one=True)


def measure(case: Case, setup: str, ranks: Ranks, device: torch.device) -> Result:
    """Milliseconds of an iteration without (alone) and with exchanges (together), and what is exchanged in it."""
    release(device)
    store, config = Store.hold(random_samples(case), device), configured(case, setup, "oneway")
    draws = random_draws(case, setup, fresh_state(config, case.classes, device).student)
    complaints: list[str] = []

    def make_iteration(group: Ranks) -> Callable[[], object]:
        advance = choose_step(fresh_state(config, case.classes, device), store, config, complaints.append, group)

        def iterate() -> None:
            advance(next(draws), config.train.alpha)
            group.agree_on_signal(None)  # as a run asks whether anybody has had a signal

        for _ in range(WARM_UP + 2 if device.type == "cuda" else 1):
            iterate()
        return iterate

    steps = {"alone": make_iteration(ALONE), "together": make_iteration(ranks)}
    synchronise(device)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS if device.type == "cuda" else 2):
        for name, iterate in steps.items():
            times[name].append(milliseconds(iterate, device, repetitions=1))
    alone, together = (median(times[name]) for name in ("alone", "together"))
    state = fresh_state(config, case.classes, device)
    sizes, group = counting(ranks)
    with sharing_batches(group):
        step(state, store, on_device(next(draws), device), config)
    synchronise(device)
    gradient = max(sizes)
    sizes.remove(gradient)
    found: Result = {
        "case": case.name,
        "setup": setup,
        "batch": case.batch,
        "processes": ranks.world_size,
        "backend": ranks.backend,
        "captured": device.type == "cuda" and ranks.can_capture and not complaints,
        "complaints": complaints,
        "alone_ms": alone,
        "together_ms": together,
        "cost": together / alone - 1,
        "rounds": times,
        "gradient_bytes": gradient,
        "exchanges": len(sizes),
        "exchanged_bytes": sum(sizes),
    }
    one = together if ranks.world_size == 1 else alone
    found["model"] = [
        {**each._asdict(), "efficiency": efficiency(found, one, each), "microseconds_for_most": room(found, one, each)}
        for each in NETWORKS
    ]
    return found


def counting(ranks: Ranks) -> tuple[list[int], Group]:
    """A group that notes how many bytes this process sends in each exchange."""
    sizes: list[int] = []
    group = ranks.group
    assert group is not None

    def noting(call: Callable[[Tensor], None], share: int) -> Callable[[Tensor], None]:
        def exchange(tensor: Tensor) -> None:
            sizes.append(tensor.nbytes // share)
            call(tensor)

        return exchange

    return sizes, Group(group.size, group.rank, noting(group.add_up, 1), noting(group.fill, group.size))


def efficiency(row: Result, one_ms: float, network: Network) -> float:
    """The work of one of many GPUs in a second, as a share of what one does alone."""
    more = row["exchanges"] * network.microseconds * 1e-3 + gradient_ms(row, network)
    return float(row["alone_ms"] / (one_ms + more))


def room(row: Result, one_ms: float, network: Network) -> float:
    """Microseconds that an exchange may take for an efficiency of `MOST`."""
    return max(0.0, row["alone_ms"] / MOST - one_ms - gradient_ms(row, network)) * 1e3 / row["exchanges"]


def gradient_ms(row: Result, network: Network) -> float:
    """Milliseconds to add up gradients: a ring sends all but one part of them twice."""
    return float(2e3 * (network.gpus - 1) / network.gpus * row["gradient_bytes"] / network.bytes_per_second)


def cost_table(rows: list[Result]) -> Table:
    """A table of what training by several processes costs."""
    columns = {
        "case": "{case}",
        "setup": "{setup}",
        "ms without exchanges": "{alone_ms:,.3f}",
        "with": "{together_ms:,.3f}",
        "cost": "{cost:+.1%}",
        "exchanges": "{exchanges:,}",
        "KB": "{exchanged_kb:,.0f}",
        "gradients MB": "{gradient_mb:,.1f}",
    }
    sizes = [
        row | {"exchanged_kb": row["exchanged_bytes"] / 1e3, "gradient_mb": row["gradient_bytes"] / 1e6} for row in rows
    ]
    processes = counted(rows[0]["processes"], "process", "processes")
    return table_of(f"A step of {processes}, without exchanges and with them", sizes, columns, texts=2)


def model_table(rows: list[Result]) -> Table:
    """A table of what may be expected of more GPUs."""
    networks = {
        f"{each.gpus} at {each.bytes_per_second / 1e9:.3g} GB/s": f"{{model[{place}][efficiency]:.1%}}"
        for place, each in enumerate(NETWORKS)
    }
    columns = {"case": "{case}", "setup": "{setup}", **networks}
    columns[f"µs for {MOST:.0%}"] = "{model[0][microseconds_for_most]:,.1f}"
    return table_of("A model of many GPUs, each with this batch: efficiency", rows, columns, texts=2)
