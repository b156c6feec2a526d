"""Files that mean harm, each given to the reader it is made for.

An audit hook watches the process: nothing may be run, and nothing outside the folder opened.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from oneway.common.errors import UserError
from oneway.runs.checkpoint import Damaged
from reliability import hostile_code, hostile_paths, hostile_sizes, hostile_weights

RUNS_SOMETHING = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pty.spawn")
MIB = 300


def hostile(folder: str) -> dict[str, Any]:
    """Tries them all; returns how many there were, and what went wrong."""
    torch.set_num_threads(1)
    place, outside = Path(folder) / "inside", Path(folder) / "outside"
    outside.mkdir()
    Image.new("RGB", (8, 8)).save(outside / "secret.png")
    (outside / "secret.json").write_text("{}")
    (outside / "secret.txt").write_text("train/a.png\n")
    torch.save({"weight": torch.zeros(1)}, outside / "secret.pth")
    before = _contents(outside)
    events: list[str] = []
    watching = False

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if not watching:
            return
        if event in RUNS_SOMETHING:
            events.append(event)
        elif event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if path.startswith(str(outside)):
                events.append(f"open {path}")

    sys.addaudithook(watch)
    wrong: list[str] = []
    refused = 0
    attacks = [*hostile_code.attacks(outside), *hostile_sizes.attacks(), *hostile_paths.attacks(outside)]
    attacks += hostile_weights.attacks()
    for number, attack in enumerate(attacks):
        here = place / str(number)
        here.mkdir(parents=True)
        attack.prepare(here)
        os.chdir(here)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        watching = True
        try:
            attack.read(here)
        except (UserError, Damaged):
            refused += 1
        except BaseException as error:
            wrong.append(f"{attack.name}: {type(error).__name__}: {str(error)[:300]}")
        finally:
            watching = False
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
        if growth > MIB:
            wrong.append(f"{attack.name}: memory grew by {growth:.0f} MiB")
        if events:
            wrong.append(f"{attack.name}: {events}")
            events.clear()
        if (outside / "trace").exists() or _contents(outside) != before:
            wrong.append(f"{attack.name}: something was run or written")
            (outside / "trace").unlink(missing_ok=True)
    return {"tried": len(attacks), "refused": refused, "wrong": wrong}


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
