"""The paper's tables and figures as commands: each trains what is missing and shows ours beside theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from oneway.errors import unknown
from oneway.reproduce.two_moons import two_moons


@dataclass(frozen=True)
class Experiment:
    """Something the paper shows."""

    shows: str
    run: Callable[[Path, int, Console], None]
    """Into a folder, over a number of seeds."""


EXPERIMENTS: dict[str, Experiment] = {
    "two-moons": Experiment("Figure 1: decision surfaces of four kinds of consistency on two moons", two_moons),
}


def reproduce(name: str, out: Path, seeds: int, console: Console) -> None:
    """Runs an experiment by its name."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    EXPERIMENTS[name].run(out / name, seeds, console)
