"""What the proofs share: small runs to disturb, processes to disturb them in, and what it means to be the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

ITERATIONS, EVERY = 24, 4
STREETS = (
    f"train streets --method mt-phtps --data.images 16 --data.size 32 64 --jitter.crop 32 64 --model.width 0.125 "
    f"--labels 4 --train.batch-labelled 2 --train.batch-unlabelled 2 --train.iterations {ITERATIONS} "
    f"--train.checkpoint-every {EVERY} --train.validate-every 12 --train.log-every 1 --train.device cpu --out run"
).split()
"""Batch norm, a mean teacher, Adam, a falling learning rate: everything that a checkpoint holds."""

MOONS = (
    f"train moons --train.iterations {ITERATIONS} --train.checkpoint-every {EVERY} --train.validate-every 12 "
    "--train.log-every 1 --out run"
).split()
"""The same in milliseconds, without batch norm."""


@dataclass
class Job:
    """A process under way."""

    zygote: subprocess.Popen[str]
    folder: Path
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
        return " ".join((self.folder / f"{self.name}.err").read_text().split())

    @property
    def output(self) -> str:
        """What it said on its standard output, in one line."""
        return " ".join((self.folder / f"{self.name}.out").read_text().split())


under_way: list[Job] = []


@lru_cache
def zygote() -> subprocess.Popen[str]:
    """One for each process of the tests; it ends with it, when its standard input does."""
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "PYTHONPATH": os.pathsep.join([str(here.parent), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, str(here / "zygote.py")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def start(folder: Path, **job: Any) -> Job:
    """A job in a folder; see `zygote`."""
    folder.mkdir(parents=True, exist_ok=True)
    name = job.setdefault("name", f"job-{time.monotonic_ns()}")
    server = zygote()
    for earlier in under_way:  # of a test that failed and never asked how it ended
        if earlier.status is None:
            os.kill(earlier.process, signal.SIGKILL)
            earlier.wait()
    assert server.stdin
    assert server.stdout
    server.stdin.write(json.dumps({"folder": str(folder), **job}) + "\n")
    server.stdin.flush()
    under_way[:] = [Job(server, folder, name, int(server.stdout.readline()))]
    return under_way[0]


def done(folder: Path, *words: object, status: int = 0, **job: Any) -> Job:
    """A `oneway` command that has ended as it should."""
    started = start(folder, command=[str(word) for word in words], **job)
    found = started.wait()
    assert found == status, f"{found} instead of {status}: {started.output} {started.error}"
    return started


def called(place: Path, function: str, **arguments: Any) -> Any:
    """What a function, as `module:name`, returns in a process of its own."""
    job = start(place, function=function, arguments=arguments)
    assert job.wait() == 0, job.error
    return json.loads((place / f"{job.name}.json").read_text())


@lru_cache
def undisturbed(words: tuple[str, ...] = tuple(STREETS)) -> Path:
    """The folder of a run that nothing happened to."""
    folder = Path(mkdtemp(prefix="undisturbed-"))
    done(folder, *words)
    return folder / "run"


def resume(folder: Path, *words: object, status: int = 0, recipe: str = "streets", **job: Any) -> Job:
    """Continues the run in a folder."""
    return done(folder, "train", recipe, "--out", "run", "--resume", *words, status=status, **job)


def same(run: Path, reference: Path) -> bool:
    """Byte for byte: student, teacher, batch norm, optimiser, model, rates, order of samples, metrics, split, settings.

    What is not compared is how long it took. No temporary file and no lock is left.
    """
    last = f"checkpoint/{ITERATIONS:08d}"
    for name in (f"{last}.safetensors", "model.safetensors", "metrics.jsonl", "split.json", "config.yaml"):
        if (run / name).read_bytes() != (reference / name).read_bytes():
            return False
    timed = ("seconds", "seal", "peak_memory_mib")
    for name in (f"{last}.json", "summary.json"):
        mine, theirs = (json.loads((folder / name).read_text()) for folder in (run, reference))
        if any(mine[key] != theirs[key] for key in mine.keys() | theirs.keys() if key not in timed):
            return False
    return not leftovers(run)


def leftovers(run: Path) -> list[str]:
    """Files that a run should not leave behind."""
    kept = {f"{iteration:08d}{suffix}" for iteration in saved(run)[-2:] for suffix in (".json", ".safetensors")}
    strange = [path.name for path in (run / "checkpoint").iterdir() if path.name not in kept]
    return strange + [path.name for path in run.iterdir() if path.name.startswith(".")]


def saved(run: Path) -> list[int]:
    """Iterations with a complete checkpoint."""
    return sorted(int(path.stem) for path in (run / "checkpoint").glob("*.json"))


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Looks every millisecond."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)
