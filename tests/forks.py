"""Starts jobs in forks of a process that has imported everything, and waits for them; `zygote` is that process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import preload


@dataclass
class Job:
    """A process under way."""

    zygote: subprocess.Popen[str]
    output_folder: Path
    name: str
    process: int
    status: int | None = None

    def wait(self) -> int:
        """Its exit status, negative where a signal ended it."""
        if self.status is None:
            assert self.zygote.stdout
            self.status = int(self.zygote.stdout.readline())
        return self.status

    @property
    def error(self) -> str:
        """What it said on its standard error, in one line."""
        return " ".join((self.output_folder / f"{self.name}.err").read_text().split())

    @property
    def output(self) -> str:
        """What it said on its standard output, in one line."""
        return " ".join((self.output_folder / f"{self.name}.out").read_text().split())


under_way: list[Job] = []


Kind = Literal["usual", "interpreted", "bare"]


@lru_cache
def zygote(kind: Kind) -> subprocess.Popen[str]:
    """One of each kind for each process of the tests; it ends with it, when its standard input does.

    One has imported everything; so has one whose kernels are interpreted, which Triton decides when it is imported; and
    one has imported PyTorch alone.
    """
    here = str(Path(__file__).parent)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "LD_PRELOAD": preload.library(),  # without effect until a job arms it
        "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]),
        **({"TRITON_INTERPRET": "1"} if kind == "interpreted" else {}),
    }
    command = [sys.executable, "-m", "zygote", kind]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def start(folder: Path, *, output: Path | None = None, kind: Kind = "usual", **job: Any) -> Job:
    """A job in a folder; what it says is kept there, or in another. See `zygote` for what can happen to it."""
    folder.mkdir(parents=True, exist_ok=True)
    output = output or folder
    name = job.setdefault("name", f"job-{time.monotonic_ns()}")
    server = zygote(kind)
    for earlier in under_way:  # of a test that failed and never asked how it ended
        if earlier.status is None:
            os.kill(earlier.process, signal.SIGKILL)
            earlier.wait()
    assert server.stdin
    assert server.stdout
    server.stdin.write(json.dumps({"folder": str(folder), "output": str(output), **job}) + "\n")
    server.stdin.flush()
    under_way[:] = [Job(server, output, name, int(server.stdout.readline()))]
    return under_way[0]


def called(place: Path, function: str, /, *, largest_file: int | None = None, **arguments: Any) -> Any:
    """What a function, as `module:name`, returns in a process of its own, which may write no larger files than that."""
    limits = {} if largest_file is None else {"largest_file": largest_file}
    job = start(place, function=function, arguments=arguments, **limits)
    assert job.wait() == 0, job.error
    return json.loads((place / f"{job.name}.json").read_text())


def run_code(code: str) -> str:
    """What a program prints that succeeds, in a process that has imported PyTorch and nothing else."""
    with TemporaryDirectory() as place:
        job = start(Path(place), kind="bare", code=code)
        assert job.wait() == 0, job.error
        return job.output
