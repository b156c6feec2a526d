"""Runs that are killed, and resumed to the byte."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from reliability.harness import EVERY, ITERATIONS, STREETS, done, resume, same, undisturbed

FILES = 2 * ITERATIONS // EVERY
"""How many files a run writes for checkpoints: tensors and manifest of each."""

SIGKILL = -9


def points(seed: int = 0) -> dict[str, dict[str, Any]]:
    """Where to kill: in sixteen steps, eight times within a write, eight before and eight after a rename."""
    rng = random.Random(seed)
    steps = rng.sample(range(1, ITERATIONS), 16)
    found: dict[str, dict[str, Any]] = {
        f"step {step}": {"kill_in_iteration": (step, rng.uniform(0, 0.05))} for step in sorted(steps)
    }
    for words, fault in (
        ("within write", {"call": "write"}),
        ("before rename", {"call": "replace"}),
        ("after rename", {"call": "replace", "after": True}),
    ):
        for turn in sorted(rng.sample(range(FILES), 8)):
            found[f"{words} {turn}"] = {"fault": {**fault, "turn": turn}}
    return found


def resumes_exactly(folder: Path, job: dict[str, Any]) -> bool:
    """A run that is killed there and resumed ends like an undisturbed one."""
    done(folder, *STREETS, status=SIGKILL, **job)
    assert not (folder / "run" / "summary.json").exists()
    resume(folder)
    return same(folder / "run", undisturbed())
