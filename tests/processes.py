"""The command as a user types it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from forks import start


def oneway(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `oneway …` in a folder and returns what it printed; the process begins from nothing.

    It has one thread, as forks do: with another number of them, sums are rounded otherwise.
    """
    command = [sys.executable, "-m", "oneway", *map(str, arguments)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120, env=variables)


def forked(*arguments: object, cwd: Path, report: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same without the seconds of importing PyTorch; a test may do without those of a run's report as well."""
    command = [str(argument) for argument in arguments]
    with TemporaryDirectory() as output:
        job = start(cwd, output=Path(output), command=command, report=report, environment=environment)
        status = job.wait()
        said = [(Path(output) / f"{job.name}.{stream}").read_text() for stream in ("out", "err")]
    return subprocess.CompletedProcess(command, status, *said)
