"""The paper's tables and figures as commands, and tables that tell methods apart: each trains what is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from rich.console import Console

from oneway.common.errors import UserError, unknown
from oneway.common.words import listed
from oneway.tools.reproduce.fill_table import fill_table
from oneway.tools.reproduce.jobs import Request
from oneway.tools.reproduce.paired_tables import PAIRED_TABLES
from oneway.tools.reproduce.qualitative import QUALITATIVE, draw_qualitative
from oneway.tools.reproduce.rounds import SHOWS, run_rounds
from oneway.tools.reproduce.tables import TABLES
from oneway.tools.reproduce.two_moons import two_moons


@dataclass(frozen=True)
class Experiment:
    """Something to train and show."""

    shows: str
    run: Callable[[Request, Console], None]


EXPERIMENTS: dict[str, Experiment] = {
    **{name: Experiment(table.shows, partial(fill_table, name)) for name, table in PAIRED_TABLES.items()},
    "rounds": Experiment(SHOWS, run_rounds),
    "two-moons": Experiment("Decision surfaces of four kinds of consistency on two moons, as a figure", two_moons),
    **{name: Experiment(table.shows, partial(fill_table, name)) for name, table in TABLES.items()},
    **{name: Experiment(figure.shows, partial(draw_qualitative, name)) for name, figure in QUALITATIVE.items()},
}


def reproduce(name: str, request: Request, console: Console) -> None:
    """Run an experiment by its name, in a folder of that name."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    if request.over is not None and name not in PAIRED_TABLES:
        raise UserError(f"--over {request.over}: {name} has no pairs of rows; {listed(PAIRED_TABLES, None)} have.")
    EXPERIMENTS[name].run(replace(request, out=request.out / name), console)
