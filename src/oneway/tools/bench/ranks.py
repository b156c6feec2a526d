"""`oneway bench ranks`: what several processes cost a step, against one that trains alone; and a model of more of them.

Under torchrun each process measures with its own GPU; started alone, it is a group of one. Batches are those of one
process, so that the baseline has the same work.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from itertools import cycle
from statistics import median
from typing import NamedTuple

import torch
from rich.table import Table
from torch import Tensor

from oneway.draws import draw
from oneway.engine.capture import WARM_UP, choose_step
from oneway.engine.ranks import ALONE, Ranks, join
from oneway.engine.step import step
from oneway.engine.store import Store
from oneway.ops import Group, sharing_batches
from oneway.tools.bench.cases import Case, configured, fresh_state, random_plan, random_samples, training_cases
from oneway.tools.bench.findings import Findings, Options, Result, Say, number, table
from oneway.tools.bench.timing import milliseconds, release, synchronise

SETUP = "simple-phtps"
MOST = 0.9
"""An efficiency worth having."""
ROUNDS = 15
"""Of each of the two, in turns."""


class Network(NamedTuple):
    """What is assumed of the connections between so many GPUs."""

    gpus: int
    microseconds: float
    """Of an exchange of a few kilobytes."""
    bytes_per_second: float
    """That a GPU sends, and receives at the same time."""


NETWORKS = (
    Network(8, 15, 370e9),  # NVLink: 450 GB/s, of which NCCL's protocol leaves about four fifths
    Network(64, 40, 50e9),  # 400 Gbit/s for each GPU
    Network(64, 40, 50e9 / 8),  # 400 Gbit/s for eight of them
)


def bench_ranks(options: Options, say: Say) -> Findings:
    """Measures every case, alone and together in turns."""
    ranks, rows = join_or_found(options.device), []
    device = torch.device(ranks.device(options.device.type))
    with ranks.watching():
        for case in options.choose(training_cases(options.small)).values():
            rows.append(row := measure(case, ranks, device))
            say(
                f"{case.name:9} alone {row['alone_ms']:.3f} ms, {ranks.of} together {row['together_ms']:.3f} ms "
                f"({row['cost']:+.1%}); {row['exchanges']} exchanges, {row['gradient_bytes'] / 1e6:.1f} MB of gradients"
            )
    notes = [
        f"The step is {SETUP}, its batch that of each process. alone: the same without a group. Both in turns, "
        f"{len(rows[0]['rounds']['alone'])} times each; {ranks.backend}, "
        + ("captured as CUDA graphs." if all(row["captured"] for row in rows) else "not captured."),
        "The model: t = together with one process + exchanges · latency + 2 (N − 1)/N · gradients / bandwidth, without "
        "overlap. "
        + "; ".join(
            f"{each.gpus} GPUs: {each.microseconds:g} µs, {each.bytes_per_second / 1e9:.3g} GB/s each way"
            for each in NETWORKS
        )
        + f". In brackets: what an exchange may take for {MOST:.0%}. "
        "`torchrun --nproc-per-node N -m oneway bench ranks` measures instead.",
    ]
    return Findings([cost_table(rows), model_table(rows)], rows, notes)


def join_or_found(device: torch.device) -> Ranks:
    """The processes that torchrun has started, or a group of this one alone."""
    if "WORLD_SIZE" not in os.environ:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return join(device.type)


def measure(case: Case, ranks: Ranks, device: torch.device) -> Result:
    """Milliseconds of an iteration alone and together, and what is exchanged in it."""
    release(device)
    store, config = Store.hold(random_samples(case), device), configured(case, SETUP, "oneway")
    plan = random_plan(case)
    draws = cycle([draw(plan, iteration) for iteration in range(8)])
    complaints: list[str] = []

    def make_iteration(group: Ranks) -> Callable[[], object]:
        advance = choose_step(fresh_state(config, case.classes, device), store, config, complaints.append, group)

        def iterate() -> None:
            advance(next(draws), config.train.alpha)
            group.agree(None)  # as a run asks whether anybody has had a signal

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
    gradient, others = count_exchanges(case, ranks, store)
    found: Result = {
        "case": case.name,
        "batch": case.batch,
        "processes": ranks.of,
        "backend": ranks.backend,
        "captured": device.type == "cuda" and ranks.can_capture and not complaints,
        "complaints": complaints,
        "alone_ms": alone,
        "together_ms": together,
        "cost": together / alone - 1,
        "rounds": times,
        "gradient_bytes": gradient,
        "exchanges": len(others),
        "exchanged_bytes": sum(others),
    }
    one = together if ranks.of == 1 else alone
    found["model"] = [
        {**each._asdict(), "efficiency": efficiency(found, one, each), "microseconds_for_most": room(found, one, each)}
        for each in NETWORKS
    ]
    return found


def count_exchanges(case: Case, ranks: Ranks, store: Store) -> tuple[int, list[int]]:
    """Bytes of the gradients, and of each other exchange of an iteration, as one process sends them."""
    assert ranks.group is not None
    sizes: list[int] = []

    def counted(call: Callable[[Tensor], None], share: int) -> Callable[[Tensor], None]:
        def exchange(tensor: Tensor) -> None:
            sizes.append(tensor.nbytes // share)
            call(tensor)

        return exchange

    group = ranks.group
    counting = Group(group.size, group.rank, counted(group.add_up, 1), counted(group.fill, group.size))
    device, config = store.pixels.device, configured(case, SETUP, "oneway")
    state = fresh_state(config, case.classes, device)
    with sharing_batches(counting):
        step(state, store, draw(random_plan(case), 0).to(device), config)
    synchronise(device)
    gradient = max(sizes)
    sizes.remove(gradient)
    return gradient, sizes


def efficiency(row: Result, one_ms: float, network: Network) -> float:
    """What one of many GPUs does in a second, by what one does alone."""
    more = row["exchanges"] * network.microseconds * 1e-3 + gradient_ms(row, network)
    return float(row["alone_ms"] / (one_ms + more))


def room(row: Result, one_ms: float, network: Network) -> float:
    """Microseconds that an exchange may take for an efficiency of `MOST`."""
    return float(row["alone_ms"] / MOST - one_ms - gradient_ms(row, network)) * 1e3 / row["exchanges"]


def gradient_ms(row: Result, network: Network) -> float:
    """Milliseconds to add up gradients: a ring sends all but one part of them twice."""
    return float(2e3 * (network.gpus - 1) / network.gpus * row["gradient_bytes"] / network.bytes_per_second)


def cost_table(rows: list[Result]) -> Table:
    """What the processes cost."""
    headings = ("case", "batch", "ms alone", "together", "cost", "exchanges", "their KB", "gradients MB")
    shown = [
        (
            row["case"],
            row["batch"],
            number(row["alone_ms"], 3),
            number(row["together_ms"], 3),
            f"{row['cost']:+.1%}",
            number(row["exchanges"], 0),
            number(row["exchanged_bytes"] / 1e3, 0),
            number(row["gradient_bytes"] / 1e6),
        )
        for row in rows
    ]
    return table("Processes that compute a step together", headings, shown, texts=2)


def model_table(rows: list[Result]) -> Table:
    """What may be expected of more."""
    headings = [f"{each.gpus} at {each.bytes_per_second / 1e9:.3g} GB/s" for each in NETWORKS]
    shown = [
        (row["case"], *(f"{each['efficiency']:.1%} ({each['microseconds_for_most']:.1f} µs)" for each in row["model"]))
        for row in rows
    ]
    return table("A model of many GPUs, each with this batch: efficiency", ("case", *headings), shown)
