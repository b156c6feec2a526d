"""Where a run computes: the device that a user names; and what a number needs beside it, from versions to command."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from oneway import __version__
from oneway.common.errors import UserError


def choose_device(name: str) -> torch.device:
    """The device of a name; `auto` takes the GPU where there is one. A GPU with a number becomes the current one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device {name}: no such kind of device. Use auto, cpu, cuda or cuda:1.") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device {name}: only cpu and cuda are supported.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device {name}: {torch.cuda.device_count()} CUDA devices are visible. Use auto or cpu.")
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)  # Triton launches kernels on the current device
    return device


def environment(device: torch.device) -> dict[str, Any]:
    """Of this process, as kept in a run folder."""
    packages = ("torch", "timm", "numpy", "Pillow")
    commit, uncommitted = find_commit(Path(__file__).parents[1])
    program = Path(sys.argv[0]).name
    return {
        "command": shlex.join(["oneway" if program == "__main__.py" else program, *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"oneway": __version__, **{name: importlib.metadata.version(name) for name in packages}},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hardware": hardware(device),
        "commit": commit,
        "uncommitted": uncommitted,
    }


def hardware(device: torch.device) -> str:
    """The GPU's name, or the processor's with the threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        name = names[0] if names else name
    threads = torch.get_num_threads()
    return f"{name}, {threads} thread{'s' if threads > 1 else ''}"


def find_commit(package: Path) -> tuple[str | None, bool | None]:
    """The commit of the checkout that the package is the source of, and whether its files differ from that commit.

    Both are None for an installed package. The repository around it may be that of a user's own project, with the
    virtual environment inside: only one that has the package at `src/oneway` is ours.
    """
    found = _git(package, "rev-parse", "--show-toplevel", "HEAD")
    if found is None:
        return None, None
    root, commit = found.splitlines()
    if Path(root, "src", "oneway").resolve() != package.resolve():
        return None, None
    changes = _git(package, "status", "--porcelain", "--", ".")
    return commit, None if changes is None else bool(changes)


def _git(folder: Path, *words: str) -> str | None:
    """What a git command prints; None where it fails, or there is no git."""
    try:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
