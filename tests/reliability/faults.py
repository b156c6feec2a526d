"""System calls that fail for a moment: nothing is lost, and the same command comes to the same end afterwards."""

from __future__ import annotations

import errno
import json
import random
import re
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import preload
from forks import start
from reliability.guards import FOLDER, write_data
from reliability.harness import MOONS, done

NUMBERS = (errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENOMEM, errno.EACCES)
NO_COMPILER = "no C compiler here, to make the library that lets system calls fail"
SHORT = {"iterations": 8, "checkpoint-every": 4, "validate-every": 8, "log-every": 4}


def shortened(words: list[str]) -> list[str]:
    """The same command, for eight iterations."""
    values = {f"--train.{name}": str(value) for name, value in SHORT.items()}
    return [values.get(before, word) for before, word in zip(["", *words], words, strict=False)]


POINTS, IMAGES = shortened(MOONS), shortened(FOLDER)
"""Runs of eight iterations with two checkpoints: of points in the plane, and of images in files."""


def disturbed(command: list[str], turn: int, number: int, place: str, report: bool = False) -> None:
    """In a fork: a `oneway` command, of whose calls on files in this folder one fails. Notes how many there were."""
    from zygote import command as run

    calls = preload.arm(Path.cwd(), turn, number)
    try:
        run({"command": command, "report": report})
    finally:
        found = {"calls": calls.fault_count(), "struck": calls.fault_place().decode()}
        calls.fault_arm(b"/nowhere", -1, 0)
        Path(place).write_text(json.dumps(found))


@dataclass(frozen=True)
class Verb:
    """A command to disturb."""

    prepare: Callable[[Path], None]
    """Fills a folder with what the command needs."""

    command: tuple[str, ...]
    again: Callable[[Path], Sequence[str]]
    """What a user types once the fault has passed."""

    result: str
    """What the command leaves, a file or a folder."""

    report: bool = False


@dataclass(frozen=True)
class Fault:
    """What came of a call that failed."""

    status: int
    struck: str
    error: str
    calls: int


def strike(folder: Path, verb: Verb, turn: int, number: int = 0) -> Fault:
    """Runs the command in a folder, with a call failing at its turn; at −1, none does."""
    place = folder.with_name(f"{folder.name}.calls")
    arguments = {"command": list(verb.command), "turn": turn, "number": number, "place": str(place)}
    output = folder.parent
    job = start(
        folder, output=output, function="reliability.faults:disturbed", arguments={**arguments, "report": verb.report}
    )
    status = job.wait()
    found = json.loads(place.read_text())
    return Fault(status, found["struck"], job.error, found["calls"])


@lru_cache
def undisturbed(name: str) -> tuple[Path, int]:
    """A folder in which nothing disturbed the command, and how many calls that took."""
    folder = Path(mkdtemp(prefix="calm-")) / name
    VERBS[name].prepare(folder)
    calm = strike(folder, VERBS[name], -1)
    assert calm.status == 0, calm.error
    return folder, calm.calls


def survives(folder: Path, name: str, turn: int, number: int) -> str:
    """What went wrong, if anything did.

    The command ends well, or with one message; no good checkpoint is lost; and the same command (for a training that
    has begun, with --resume) comes to the same end as if nothing had happened, and leaves nothing unfinished.
    """
    verb = VERBS[name]
    verb.prepare(folder)
    before, unchanged = checkpoints(folder), contents(folder)
    fault = strike(folder, verb, turn, number)
    what = f"{name}, call {turn} ({fault.struck}) failing with {errno.errorcode[number]}: "
    if fault.status not in (0, 1) or "Traceback" in fault.error or "bug in oneway" in fault.error:
        return f"{what}ended with {fault.status}: {fault.error[:500]}"
    if before - checkpoints(folder) and max(checkpoints(folder), default=0) <= max(before):
        return f"{what}lost {before - checkpoints(folder)}: {fault.error[:500]}"
    if list(folder.rglob("*.damaged")):
        return f"{what}took whole checkpoints for damaged"
    if fault.status == 1 and contents(folder) == unchanged:
        return ""  # the same command begins where it began, and needs not be seen to come to the same end
    if fault.status == 1:
        done(folder, *verb.again(folder), report=verb.report)
    differing = differences(folder / verb.result, undisturbed(name)[0] / verb.result)
    return f"{what}{differing} after {fault.error[:300]!r}" if differing else ""


def checkpoints(folder: Path) -> set[int]:
    """Iterations with a complete checkpoint."""
    return {int(file.stem) for file in (folder / "run" / "checkpoint").glob("*.json")}


def differences(result: Path, reference: Path) -> list[str]:
    """Files that are not byte for byte the same, missing, or too many; how long it took is not compared."""
    mine, theirs = contents(result), contents(reference)
    return sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))


TIMED = ("seconds", "seal", "peak_memory_mib", "started", "command", "stretches", "commit", "uncommitted")
"""What may differ between two runs, also since somebody changes our source meanwhile."""


NOTED = re.compile(rb"tEXtOrigin\0[0-9a-f]{32}.{4}", re.DOTALL)
"""What a predicted mask notes of the path and the time of its image, with its checksum."""


def contents(place: Path) -> dict[str, Any]:
    """The files of a folder; JSON without what is timed, and without the name of the folder that all is in."""
    found: dict[str, Any] = {}
    for file in place.rglob("*"):
        if file.is_file() and file.name != ".lock":  # one that could not be removed locks nothing
            content = file.read_bytes().replace(str(place.parent).encode(), b"HERE")
            content = NOTED.sub(b"", content)
            values = json.loads(content) if file.suffix == ".json" else {}
            timeless = {key: value for key, value in values.items() if key not in TIMED}
            found[str(file.relative_to(place))] = timeless or content
    return found


@lru_cache
def half_done(words: tuple[str, ...]) -> Path:
    """A run that was killed after its first checkpoint, with its data."""
    folder = Path(mkdtemp(prefix="half-"))
    write_data(folder)
    fault = {"call": "replace", "turn": 1, "after": True}
    done(folder, *words, status=-signal.SIGKILL, fault=fault)
    return folder


def copy_of(words: list[str]) -> Callable[[Path], None]:
    """Makes a folder like that of a run that was killed."""

    def prepare(folder: Path) -> None:
        shutil.copytree(half_done(tuple(words)), folder, symlinks=True)

    return prepare


def with_data(folder: Path) -> None:
    """Six images with masks."""
    folder.mkdir(parents=True)
    write_data(folder)


def resume(recipe: str) -> tuple[str, ...]:
    return ("train", recipe, "--out", "run", "--resume")


def begin_or_resume(words: list[str]) -> Callable[[Path], Sequence[str]]:
    """The same command; with --resume where it has begun."""
    return lambda folder: [*words, *(["--resume"] if (folder / "run" / "config.yaml").exists() else [])]


def ended(folder: Path) -> None:
    """A run of images that has ended."""
    shutil.copytree(undisturbed("resume images")[0], folder, symlinks=True)


VERBS = {
    "train points": Verb(lambda folder: folder.mkdir(parents=True), tuple(POINTS), begin_or_resume(POINTS), "run"),
    "train images": Verb(with_data, tuple(IMAGES), begin_or_resume(IMAGES), "run"),
    "resume points": Verb(copy_of(POINTS), resume("moons"), lambda folder: resume("moons"), "run"),
    "resume images": Verb(copy_of(IMAGES), resume("folder"), lambda folder: resume("folder"), "run"),
    "report": Verb(ended, ("report", "run"), lambda folder: ("report", "run"), "run", report=True),
    "predict": Verb(
        ended,
        ("predict", "run", "data/images", "--out", "masks"),
        lambda folder: ("predict", "run", "data/images", "--out", "masks"),
        "masks",
    ),
}


RANDOM = {"train points": 60, "train images": 10, "resume points": 60, "resume images": 20, "report": 10, "predict": 40}
"""Of 200 faults, how many strike each command."""


def parts(size: int = 10) -> list[tuple[str, int, int]]:
    """The faults in parts that can be tested side by side: command, number of faults, and which part."""
    return [(name, size, part) for name, count in RANDOM.items() for part in range(count // size)]


def random_turns(name: str, count: int, seed: int = 0) -> list[tuple[int, int]]:
    """Which calls of a command fail, and with what."""
    rng, (_, calls) = random.Random(f"{name} {seed}"), undisturbed(name)
    return [(turn, rng.choice(NUMBERS)) for turn in rng.sample(range(calls), count)]
