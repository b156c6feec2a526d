"""Runs that are asked to stop."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from reliability.harness import STREETS, resume, same, saved, start, undisturbed, wait_until


def comes_back(folder: Path, number: int, iteration: int) -> bool:
    """Stopped behind a checkpoint, with the state of where it stood saved; resumed, the run is the same."""
    job = start(folder, command=STREETS)
    wait_until(lambda: iteration in saved(folder / "run"))
    os.kill(job.process, number)
    status = job.wait()
    assert status == 128 + number, job.error
    assert "--resume continues" in job.error
    stopped = int(job.error.split("Stopped after ")[1].split()[0])
    assert saved(folder / "run")[-1] == stopped >= iteration
    resume(folder)
    return same(folder / "run", undisturbed())


def survives_a_second_signal(folder: Path, number: int) -> bool:
    """While a slow disk takes the checkpoint of the first."""
    job = start(folder, command=STREETS, fault={"call": "fsync", "turn": 8, "seconds": 1.0})
    wait_until(lambda: any((folder / "run" / "checkpoint").glob(".00000012.safetensors.*")))
    os.kill(job.process, number)
    log = folder / "run" / "metrics.jsonl"
    wait_until(lambda: '"iteration": 13' in log.read_text())
    os.kill(job.process, number)
    status = job.wait()
    assert status in (-number, 128 + number), job.error
    # An impatient SIGTERM ends the process as it does any other; SIGINT waits for the disk.
    assert number != signal.SIGINT or status == 128 + number
    resume(folder)
    return same(folder / "run", undisturbed())
