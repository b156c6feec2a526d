"""Runs of the first version, made with its last commit: one killed after 40 of 80 iterations, one that ended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from golden import record
from reliability.harness import resume

RUNS = Path(__file__).parents[1] / "first_version"
KILLED, ENDED = RUNS / "killed", RUNS / "ended"
MACHINE = "PyTorch 2.15.0+cu132, AuthenticAMD, AVX512, one thread, glibc 2.36"
"""Where the first version's last commit trained them."""

UNINTERRUPTED = "18bb682a6ce515bd65dd4b6a891047754dca373648e1cf93e55c374c214cbe5e"
"""The digest of the last checkpoint of a run like the killed one, that the first version trained to its end."""

VALUE = 87.5
"""Its accuracy, in percent."""


def continues_exactly(folder: Path) -> bool:
    """The killed run comes to its end; on the kind of machine that began it, to the bit of the uninterrupted run."""
    run = shutil.copytree(KILLED, folder / "run")
    resume(folder, recipe="moons")
    summary = json.loads((run / "summary.json").read_text())
    return (
        summary["iterations"] == 80
        and (run / "checkpoint" / "00000080.json").exists()
        and (MACHINE not in record.machines() or (record.digest(run), summary["value"]) == (UNINTERRUPTED, VALUE))
    )
