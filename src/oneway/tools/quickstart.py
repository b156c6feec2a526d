"""The first thing a newcomer runs: what unlabelled images are worth, on embedded data, in minutes."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from oneway.common.run_files import CONFIG
from oneway.config import Config, Precision
from oneway.config.recipes import configured
from oneway.engine.start import fast_precision
from oneway.runs import choose_device, open_run
from oneway.tools.compare import compare

COMPARED: tuple[str, str] = ("supervised", "simple-phtps")


def quickstart(out: Path, seed: int, console: Console) -> None:
    """Trains both methods with the same labels and iterations; writes `summary.json` and `report.html` beside them."""
    precision = choose_precision(out)
    compare([quickstart_config(method, seed, precision) for method in COMPARED], out, console)


def choose_precision(out: Path) -> Precision:
    """The fastest on this computer; where a run has been begun, that run's, whichever computer that was."""
    begun = [out / method for method in COMPARED if (out / method / CONFIG).is_file()]
    if begun:
        return open_run(begun[0]).config.train.precision
    # In bfloat16, threads that wait for each other do not give way: on busy cores it takes longer than float32.
    return "auto" if is_busy() else fast_precision(choose_device("auto"))


def is_busy() -> bool:
    """Whether more programs have been running in the last minute than there are cores, as far as is known."""
    try:
        return os.getloadavg()[0] > (os.cpu_count() or 1)
    except OSError:  # without /proc, say
        return False


def quickstart_config(method: str, seed: int, precision: Precision = "auto") -> Config:
    """The `streets` recipe; the method is the only difference between the two runs."""
    changes = {"method": method, "seed": seed, "train": {"precision": precision}}
    return configured("streets", changes, source="quickstart")
