"""What becomes of a run's folder, its files and its machine while it trains, or before it is resumed."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import torch

from oneway.common.errors import UserError
from oneway.runs import lock
from reliability.guards import FOLDER, contents, is_refused, killed, says, write_data
from reliability.harness import MOONS, STREETS, Job, done, resume, same, start, undisturbed, wait_until

MISSING = "checkpoints are missing"


def under_way(folder: Path) -> Job:
    """A run whose third checkpoint is being written, which takes a second."""
    job = start(folder, command=MOONS, fault={"call": "write", "turn": 4, "seconds": 1.0})
    wait_until(lambda: any((folder / "run" / "checkpoint").glob(".00000012.safetensors.*")))
    return job


def renamed_and_replaced(folder: Path) -> bool:
    """The run stops, names its folder, and has the lock on it until then; the new folder of its old name is untouched.

    Resumed under its new name, it ends like an undisturbed run.
    """
    reference, run, moved = undisturbed(tuple(MOONS)), folder / "run", folder / "moved"
    job = under_way(folder)
    run.rename(moved)
    shutil.copytree(reference, run)
    before = contents(run)
    held = f"process {job.process} on" in lock_refused(moved) and not lock_refused(run)
    assert job.wait() == 1, job.error
    told = says(job, f"renamed while it trained, and is now {moved}") and f"--resume --out {moved}" in job.error
    untouched = contents(run) == before and not [name for name in os.listdir(run) if name.startswith(".")]
    done(folder, "train", "moons", "--resume", "--out", "moved")
    return held and told and untouched and same(moved, reference)


def lock_refused(folder: Path) -> str:
    """Why the folder cannot be locked; nothing where it can."""
    try:
        with lock.hold(folder):
            return ""
    except UserError as error:
        return str(error)


def renamed(folder: Path) -> bool:
    """The same with nothing in its place."""
    job = under_way(folder)
    (folder / "run").rename(folder / "moved")
    assert job.wait() == 1, job.error
    assert not (folder / "run").exists()
    done(folder, "train", "moons", "--resume", "--out", "moved")
    return says(job, f"is now {folder / 'moved'}") and same(folder / "moved", undisturbed(tuple(MOONS)))


def removed(folder: Path) -> bool:
    """A run whose folder is gone says so, and makes no other."""
    job = under_way(folder)
    (folder / "run").rename(folder / "moved")
    shutil.rmtree(folder / "moved")
    assert job.wait() == 1, job.error
    return says(job, "while it trained") and not (folder / "run").exists()


def without_checkpoints(folder: Path, remove: Callable[[Path], object]) -> bool:
    """Where the log knows of more than is there, nothing starts over: until the checkpoints are back, or the log gone.

    The run then ends like an undisturbed one.
    """
    run = killed(folder)
    shutil.copytree(run, folder / "copy")
    remove(run / "checkpoint")
    refused = is_refused(folder, saying=MISSING)
    shutil.rmtree(run / "checkpoint", ignore_errors=True)
    shutil.copytree(folder / "copy" / "checkpoint", run / "checkpoint")
    resume(folder, recipe="moons")
    restored = same(run, undisturbed(tuple(MOONS)))
    shutil.rmtree(run)
    shutil.copytree(folder / "copy", run)
    shutil.rmtree(run / "checkpoint")
    (run / "metrics.jsonl").unlink()
    resume(folder, recipe="moons")
    return refused and restored and same(run, undisturbed(tuple(MOONS)))


def empty(checkpoints: Path) -> None:
    """Removes what is in a folder."""
    for file in checkpoints.iterdir():
        file.unlink()


WITHOUT_CHECKPOINTS = {"no folder": shutil.rmtree, "an empty folder": empty}


def elsewhere(command: list[str], threads: int, version: str) -> None:
    """In a fork: a command with another number of threads, and another PyTorch, by its name."""
    from zygote import command as run

    real = importlib.metadata.version
    importlib.metadata.version = lambda name: version if name == "torch" else real(name)
    torch.set_num_threads(threads)
    run({"command": command})


def stretches_are_recorded(folder: Path) -> bool:
    """Each with where it began; what changed is said, and nothing where nothing did."""
    run = killed(folder)
    before = json.loads((run / "environment.json").read_text())
    words = ["train", "moons", "--out", "run", "--resume"]
    arguments = {"command": words, "threads": 2, "version": "9.9"}
    killed_again = {"call": "replace", "turn": 1, "after": True}
    job = start(folder, function="reliability.lost:elsewhere", arguments=arguments, fault=killed_again)
    assert job.wait() == -9, job.error
    assert f"threads 1 → 2; torch {torch.__version__.partition('+')[0]}" in job.output.replace("+cpu", ""), job.output
    again = resume(folder, recipe="moons")
    assert "threads 2 → 1" in again.output, again.output
    after = json.loads((run / "environment.json").read_text())
    begun = [stretch["iteration"] for stretch in after["stretches"]]
    versions = [stretch["versions"]["torch"] for stretch in after["stretches"]]
    kept = {key: value for key, value in after.items() if key != "stretches"}
    return (
        kept == {key: value for key, value in before.items() if key != "stretches"}
        and begun == [0, 12, 16]
        and versions[1] == "9.9" != versions[0] == versions[2]
    )


def same_surroundings_are_not_mentioned(folder: Path) -> bool:
    """No note where nothing changed."""
    killed(folder)
    return "not as in the iterations before" not in resume(folder, recipe="moons").output


def weights_are_gone(folder: Path) -> bool:
    """What a run began with is in its checkpoints: it continues to the byte, each part at its own learning rate."""
    shutil.copy(undisturbed() / "model.safetensors", folder / "weights.safetensors")
    words = [*STREETS, "--model.weights", "weights.safetensors", "--optimiser.learning-rate-pretrained", "1e-4"]
    done(folder, *words)
    (folder / "run").rename(folder / "whole")
    killed(folder, words)
    (folder / "weights.safetensors").unlink()
    resume(folder)
    return same(folder / "run", folder / "whole")


TAUGHT = [*MOONS, "--teacher", "large"]


def taught(folder: Path) -> Path:
    """A run with a teacher, killed halfway, beside a whole one; returns the folder of the teacher."""
    done(folder, *MOONS[:-1], "large", "--method", "supervised")
    done(folder, *TAUGHT)
    (folder / "run").rename(folder / "whole")
    killed(folder, TAUGHT)
    return folder / "large"


def teacher_is_gone(folder: Path) -> bool:
    """Its absence is explained; where it lies elsewhere, the run continues to the byte."""
    taught(folder).rename(folder / "elsewhere")
    explained = is_refused(folder, saying="checkpoints do not hold it")
    resume(folder, "--teacher", "elsewhere", recipe="moons")
    mine, whole = contents(folder / "run"), contents(folder / "whole")
    names = ("checkpoint/00000024.safetensors", "model.safetensors", "metrics.jsonl")
    return explained and all(mine[name] == whole[name] for name in names)


def teacher_is_another(folder: Path) -> bool:
    """One of the same name with other weights is another experiment."""
    shutil.rmtree(taught(folder))
    done(folder, *MOONS[:-1], "large", "--method", "supervised", "--seed", "1")
    return is_refused(folder, saying="its content is")


def resumed_from_another_folder(folder: Path) -> bool:
    """The same words, typed where their relative paths lead nowhere, mean what they meant."""
    home = folder / "home"
    home.mkdir()
    write_data(home)
    done(home, *FOLDER[:-1], "first")
    words = " ".join(FOLDER).replace("--model.weights none", "--model.weights first/model.safetensors")
    words = words.replace("--labels all", "--labels list.txt").replace("--out run", f"--out {home / 'run'}").split()
    (home / "list.txt").write_text("images/0.png\nimages/1.png\nimages/2.png\nimages/3.png\n")
    done(home, *words)
    (home / "run").rename(home / "whole")
    killed(home, words)
    there = folder / "there"
    there.mkdir()
    job = done(there, *words, "--resume")
    told = f"model.weights: first/model.safetensors is {home}/first/model.safetensors" in job.output
    return told and same(home / "run", home / "whole") and not (there / "cache").exists()


def unsynced(command: list[str]) -> None:
    """In a fork: a file system that cannot sync folders."""
    from zygote import command as run

    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(descriptor)

    os.fsync = fsync
    run({"command": command})


def folders_cannot_be_synced(folder: Path) -> bool:
    """A run works, and says once what it cannot promise."""
    job = start(folder, function="reliability.lost:unsynced", arguments={"command": MOONS})
    assert job.wait() == 0, job.error
    return job.output.count("cannot sync folders") == 1 and same(folder / "run", undisturbed(tuple(MOONS)))


FOLDERS = {"renamed and replaced": renamed_and_replaced, "renamed": renamed, "removed": removed}
SURROUNDINGS = {
    "threads and versions": stretches_are_recorded,
    "nothing changed": same_surroundings_are_not_mentioned,
    "initial weights gone": weights_are_gone,
    "teacher gone": teacher_is_gone,
    "another teacher": teacher_is_another,
    "another working directory": resumed_from_another_folder,
    "folders that cannot be synced": folders_cannot_be_synced,
}
