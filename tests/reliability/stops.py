"""Runs that are stopped by a signal."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from reliability.harness import STREETS, resume, same, saved, start, undisturbed, wait_until


def resumes_exactly(folder: Path, number: int, iteration: int) -> bool:
    """Stopped after a checkpoint, a run saves its state; resumed, it ends like an undisturbed one."""
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
    """The second comes while a slow disk writes the checkpoint of the first."""
    job = start(folder, command=STREETS, fault={"call": "fsync", "turn": 8, "seconds": 1.0})
    wait_until(lambda: any((folder / "run" / "checkpoint").glob(".00000012.safetensors.*")))
    os.kill(job.process, number)
    log = folder / "run" / "metrics.jsonl"
    wait_until(lambda: '"iteration": 13' in log.read_text())
    os.kill(job.process, number)
    status = job.wait()
    assert status in (-number, 128 + number), job.error
    # A second SIGTERM ends the process at once; SIGINT becomes KeyboardInterrupt, and the thread finishes its write.
    # The system sends the others twice, and nobody is in a hurry then.
    assert number == signal.SIGTERM or status == 128 + number
    resume(folder)
    return same(folder / "run", undisturbed())
