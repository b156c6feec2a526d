"""Disks that are full or not writable: the run stops with the reason, and continues later."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from reliability.harness import (
    MOONS,
    Job,
    done,
    leftovers,
    resume,
    same,
    saved,
    start,
    undisturbed,
    wait_until,
)

POINTS: dict[str, dict[str, Any]] = {
    "full in a file of tensors": {"call": "write", "turn": 4, "errno": errno.ENOSPC},
    "full in a manifest": {"call": "write", "turn": 5, "errno": errno.ENOSPC},
    "quota in a file of tensors": {"call": "write", "turn": 2, "errno": errno.EDQUOT},
    "quota in a sync": {"call": "fsync", "turn": 8, "errno": errno.EDQUOT},
    "full in the sync of a manifest": {"call": "fsync", "turn": 10, "errno": errno.ENOSPC},
    "disk error": {"call": "fsync", "turn": 12, "errno": errno.EIO},
    "no permission to create": {"call": "open", "turn": 4, "errno": errno.EACCES},
    "file system turned read-only": {"call": "open", "turn": 7, "errno": errno.EROFS},
    "no permission to rename": {"call": "replace", "turn": 4, "errno": errno.EACCES},
    "too large a file": {"call": "write", "turn": 6, "errno": errno.EFBIG},
}


def stops_with_the_reason(folder: Path, fault: dict[str, Any]) -> bool:
    """The run stops and says why, leaves no incomplete file, and continues once the cause is gone."""
    reference = undisturbed(tuple(MOONS))
    job = done(folder, *MOONS, status=1, fault=fault)
    assert explains(job), job.error
    assert saved(folder / "run"), "no checkpoint is left"
    assert not [name for name in leftovers(folder / "run") if name.endswith(".tmp")]
    resume(folder, recipe="moons")
    return same(folder / "run", reference)


def explains(job: Job) -> bool:
    """Path, bytes needed and bytes free."""
    return bool(
        re.search(r"oneway: \S*run\S*: cannot be written \(.+\); \d+ bytes are needed, \d+ are free", job.error)
    )


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[bool]:
    """Mounts a file system of so many bytes; False where only root may."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", folder], check=True)


def fills_up(folder: Path) -> bool | None:
    """A real disk that something else fills while the run trains; None where none can be mounted."""
    reference = undisturbed(tuple(MOONS))
    with small_disk(folder / "disk", 2**21) as mounted:
        if not mounted:
            return None
        run = folder / "disk" / "run"
        slow = {"call": "write", "turn": 4, "seconds": 1.0}
        job = start(folder, command=[*MOONS[:-1], str(run)], fault=slow)
        wait_until(lambda: 8 in saved(run))
        ballast = os.open(folder / "disk" / "ballast", os.O_WRONLY | os.O_CREAT)
        with suppress(OSError):
            while True:
                os.write(ballast, bytes(4096))
        os.close(ballast)
        assert job.wait() == 1, job.error
        assert explains(job), job.error
        assert saved(run)
        assert not [name for name in leftovers(run) if name.endswith(".tmp")]
        (folder / "disk" / "ballast").unlink()
        done(folder, "train", "moons", "--resume", "--out", run)
        return same(run, reference)


def _small_limit(folder: Path) -> bool:
    job = done(folder, *MOONS, status=1, largest_file=20_000)
    return explains(job) and not (folder / "run").exists()


def _small_file_system(folder: Path) -> bool | None:
    with small_disk(folder / "disk", 100_000) as mounted:
        if not mounted:
            return None
        job = start(folder, command=[*MOONS[:-1], "disk/run"])
        return (
            job.wait() == 1 and "bytes are needed for checkpoints" in job.error and not (folder / "disk/run").exists()
        )


def _no_folder(folder: Path) -> bool:
    (folder / "run").write_text("in the way")
    job = done(folder, *MOONS[:-1], "run/here", status=1)
    return "run/here" in job.error and "--out" in job.error


TOO_SMALL = {"a limit on files": _small_limit, "a small disk": _small_file_system, "no folder": _no_folder}
