"""The first thing a newcomer runs: what unlabelled images are worth, on embedded data, in minutes."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from oneway.config import Config
from oneway.config.recipes import configured
from oneway.tools.compare import compare

COMPARED: tuple[str, str] = ("supervised", "simple-phtps")


def quickstart(out: Path, seed: int, console: Console) -> None:
    """Train both methods with the same labels and iterations; writes `summary.json` and `report.html` beside them."""
    compare([quickstart_config(method, seed) for method in COMPARED], out, console)


def quickstart_config(method: str, seed: int) -> Config:
    """The `streets` recipe; the method is the only difference between the two runs.

    In float32 on every CPU. In bfloat16, an idle processor that has it takes two thirds of the time; but threads of
    oneDNN wait for one another there without giving way, and beside other programs take several times as long.
    """
    return configured("streets", {"method": method, "seed": seed}, source="quickstart")
