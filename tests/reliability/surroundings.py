"""What surrounds a run and must not cost it: whoever reads what it prints, the terminal, and processor time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from reliability.harness import ITERATIONS, MOONS, STREETS, done, resume, same, saved, start, undisturbed, wait_until

LOST = ("reader", "terminal", "full", "closed", "ascii")
"""Of the standard output and error: gone while it trains, on a full disk, never there, without `→` and `·`."""


def trains_unread(folder: Path, how: str) -> bool:
    """Nobody can read what a run prints: it ends as ever, with the same files."""
    done(folder, *MOONS, lost_output=how)
    return same(folder / "run", undisturbed(tuple(MOONS)))


def nohup_is_obeyed(folder: Path) -> bool:
    """A terminal that is closed does not end a run that was started to outlive it."""
    job = start(folder, command=STREETS, ignored=[signal.SIGHUP])
    wait_until(lambda: 4 in saved(folder / "run"))
    os.kill(job.process, signal.SIGHUP)
    return job.wait() == 0 and same(folder / "run", undisturbed())


def saves_when_its_time_is_up(folder: Path) -> bool:
    """The system sends SIGXCPU with every further second, also while a slow disk takes the checkpoint."""
    words = " ".join(STREETS).replace(f"--train.iterations {ITERATIONS}", "--train.iterations 2000").split()
    slow = {"call": "fsync", "turn": 8, "seconds": 2.0}
    job = start(folder, command=words, limit_time_in_iteration=2, fault=slow)
    assert job.wait() == 128 + signal.SIGXCPU, job.error
    assert "--resume continues" in job.error
    stopped = int(job.error.split("Stopped after ")[1].split()[0])
    return saved(folder / "run")[-1] == stopped


def says_that_memory_has_ended(folder: Path, more: int) -> bool:
    """The address space comes to its end while a run trains: a message, and it continues to the byte elsewhere."""
    job = done(folder, *STREETS, status=1, limit_memory_in_iteration=[9, more])
    assert "Out of memory" in job.error, job.error
    assert saved(folder / "run")[-1] == 8
    resume(folder)
    return same(folder / "run", undisturbed())
