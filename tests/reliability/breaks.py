"""Files that are damaged before a run, or while it trains."""

from __future__ import annotations

import json
import os
from pathlib import Path

from reliability.guards import FOLDER, killed, says, write_data
from reliability.harness import done, resume, same, saved, start

LABELLED = 10
SKIP = "--data.skip-unreadable"
MANY = [word if word != "supervised" else "simple-phtps" for word in FOLDER] + ["--train.batch-unlabelled", "2"]

CUTS = {
    "training pixels, streamed": {"streamed": True, "cut_in_iteration": [13, "cache/*/train/pixels"]},
    "training labels, streamed": {"streamed": True, "cut_in_iteration": [13, "cache/*/train/labels"]},
    "validation pixels": {"cut_in_iteration": [13, "cache/*/val/pixels"]},
    "validation labels": {"cut_in_iteration": [13, "cache/*/val/labels"]},
}
"""Which file of the cache is truncated while a run trains."""


def write_damaged_data(folder: Path, images: int, broken: list[str]) -> None:
    """Ten images with masks and many without, of which some are truncated."""
    data = write_data(folder, images)
    for index in range(LABELLED, images):
        (data / "masks" / f"{index}.png").unlink()
    for name in broken:
        os.truncate(data / name, (data / name).stat().st_size // 2)


def few_are_left_out(folder: Path) -> bool:
    """Two of 300 images: counted and named, in no part of the run, and in none after a kill either."""
    broken = ["images/50.png", "images/170.png"]
    write_damaged_data(folder, 300, broken)
    job = done(folder, *MANY, SKIP)
    told = "2 of the 298 training images cannot be read and are left out" in job.output
    told &= all(name in job.output for name in broken)
    (folder / "run").rename(folder / "whole")
    killed(folder, [*MANY, SKIP])
    resume(folder, recipe="folder")
    split = json.loads((folder / "run" / "split.json").read_text())
    recorded = "skip_unreadable: true" in (folder / "run" / "config.yaml").read_text()
    left_out = len(split["unlabelled"]) == 296 and not set(broken) & set(split["unlabelled"])
    return told and recorded and left_out and same(folder / "run", folder / "whole")


def many_are_refused(folder: Path) -> bool:
    """Two of 100 images where 1 % may be: refused with their number, share and names, and nothing is left behind."""
    broken = ["images/50.png", "images/70.png"]
    write_damaged_data(folder, 100, broken)
    job = done(folder, *MANY, SKIP, "--data.unreadable", "0.01", status=1)
    told = says(job, "2 of the 90 unlabelled images (2.2 %) cannot be read")
    told &= all(words in job.error for words in ("--data.unreadable", *broken))
    return told and not (folder / "run").exists()


def truncation_is_named(folder: Path, cut: dict[str, object]) -> bool:
    """The run stops with the path of the truncated file; resumed, it decodes again and ends like an undisturbed one."""
    write_data(folder)
    done(folder, *FOLDER)
    (folder / "run").rename(folder / "whole")
    job = start(folder, command=FOLDER, **cut)
    status = job.wait()
    assert status == 1, f"{status}: {job.error}"
    _, pattern = cut["cut_in_iteration"]
    (file,) = folder.glob(pattern)
    told = says(job, f"{file.relative_to(folder)}: has 100 of its") and "--resume" in job.error
    assert saved(folder / "run")[-1] >= 12
    resume(folder, recipe="folder")
    return told and same(folder / "run", folder / "whole")


def truncation_changes_nothing(folder: Path) -> bool:
    """Once all training data are in memory, the cache is not needed."""
    write_data(folder)
    done(folder, *FOLDER)
    (folder / "run").rename(folder / "whole")
    done(folder, *FOLDER, cut_in_iteration=[13, "cache/*/train/pixels"])
    return same(folder / "run", folder / "whole")
