"""The tables of `oneway bench step`: time, memory, and where the time goes.

A result is of one case and setup; what each engine measured is under its name, or None.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table

from oneway.tools.bench.findings import Result, number, ratio, table, times
from oneway.tools.bench.kernels import KINDS, OTHER
from oneway.tools.bench.paper import TRAINING, Training


def time_table(rows: list[Result]) -> Table:
    """Milliseconds of an iteration: ours, plain PyTorch's and the paper's."""
    ready = [number(_of(row, "oneway", "start_seconds")) for row in rows]
    made = _compared(rows, "milliseconds", 2, lambda theirs: theirs.milliseconds)
    headings = ("ms", "plain ms", "plain / ours", "÷ sup.", "paper ms", "÷ sup.", "ready after s")
    shown = [(*cells, start) for cells, start in zip(made, ready, strict=True)]
    return table("Time of one training iteration", ("case", "setup", *headings), _sections(shown), texts=2)


def memory_table(rows: list[Result]) -> Table:
    """Peak memory in MiB, likewise."""
    headings = ("MiB", "plain MiB", "plain / ours", "÷ sup.", "paper MiB", "÷ sup.")
    shown = _compared(rows, "peak_mib", 0, lambda theirs: theirs.mib)
    return table("Peak memory of one training iteration", ("case", "setup", *headings), _sections(shown), texts=2)


def _compared(
    rows: list[Result], key: str, decimals: int, of_paper: Callable[[Training], float]
) -> list[tuple[str, ...]]:
    """Of each row: ours, plain PyTorch's, their ratio, ours over our supervised one, and the paper's two numbers."""
    ours = {(row["case"], row["setup"]): _of(row, "oneway", key) for row in rows}
    papers = {place: of_paper(theirs) for place, theirs in TRAINING.items()}
    compared: list[tuple[str, ...]] = []
    for row in rows:
        place, baseline = (row["case"], row["setup"]), (row["case"], "supervised")
        plain = _of(row, "plain", key)
        compared.append(
            (
                *place,
                number(ours[place], decimals),
                number(plain, decimals),
                times(ratio(plain, ours[place])),
                times(ratio(ours[place], ours.get(baseline))),
                number(papers.get(place), 0),
                times(ratio(papers.get(place), papers.get(baseline))),
            )
        )
    return compared


def _sections(cells: list[tuple[str, ...]]) -> list[tuple[str, ...] | None]:
    """With a line between cases."""
    parted: list[tuple[str, ...] | None] = []
    for row in cells:
        if parted and parted[-1] is not None and parted[-1][0] != row[0]:
            parted.append(None)
        parted.append(row)
    return parted


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
