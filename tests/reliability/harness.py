"""What the tests share: small runs to disturb, in forks, and how two runs are compared."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from forks import Job, start

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
"""Takes milliseconds; without batch norm."""


def done(folder: Path, *words: object, status: int = 0, **job: Any) -> Job:
    """Runs a `oneway` command, which must end with this status."""
    started = start(folder, command=[str(word) for word in words], **job)
    found = started.wait()
    assert found == status, f"{found} instead of {status}: {started.output} {started.error}"
    return started


@lru_cache
def undisturbed(words: tuple[str, ...] = tuple(STREETS)) -> Path:
    """The folder of a run that nothing disturbed."""
    folder = Path(mkdtemp(prefix="undisturbed-"))
    done(folder, *words)
    return folder / "run"


def resume(folder: Path, *words: object, status: int = 0, recipe: str = "streets", **job: Any) -> Job:
    """Continues the run in a folder."""
    return done(folder, "train", recipe, "--out", "run", "--resume", *words, status=status, **job)


def same(run: Path, reference: Path) -> bool:
    """Byte for byte: student, teacher, batch norm, optimiser, model, rates, order of samples, metrics, split, settings.

    How long it took is not compared. No temporary file and no lock is left.
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
    """Checks every millisecond, and fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)
