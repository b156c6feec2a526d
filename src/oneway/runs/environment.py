"""The choice of the device, and `environment.json`: versions, hardware, commit and command of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from oneway import __version__
from oneway.common.errors import UserError
from oneway.common.words import counted
from oneway.config import Config
from oneway.engine.rendezvous import joined
from oneway.runs.own_code import own_code


def choose_device(name: str) -> torch.device:
    """The device of a name; `auto` is the GPU if there is one. A GPU with a number becomes the current device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device {name}: no such kind of device. Use auto, cpu, cuda or cuda:1.") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device {name}: only cpu and cuda are supported.")
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        found = f"PyTorch {torch.__version__} finds {counted(count, 'CUDA device') if count else 'no GPU'} here"
        raise UserError(f"device {name}: {found}. Use auto or cpu.")
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)  # Triton launches kernels on the current device
    return device


def environment(device: torch.device) -> dict[str, Any]:
    """The environment of this process, for `environment.json`."""
    packages = ("torch", "timm", "numpy", "Pillow")
    commit, uncommitted = find_commit(Path(__file__).parents[1])
    program, ranks = Path(sys.argv[0]).name, joined()
    several = {"processes": ranks.world_size, "hosts": list(ranks.hosts), "backend": ranks.backend}
    return {
        "command": shlex.join(["oneway" if program == "__main__.py" else program, *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"oneway": __version__, **{name: importlib.metadata.version(name) for name in packages}},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": str(device),
        "hardware": hardware(device),
        "threads": torch.get_num_threads(),
        **({} if ranks.alone else several),
        "commit": commit,
        "uncommitted": uncommitted,
    }


def environment_of(config: Config) -> dict[str, Any]:
    """The environment of a run that this process trains, with digests of what the user wrote for it."""
    now = environment(choose_device(config.train.device))
    return now | ({"code": code} if (code := own_code(config)) else {})


def begin_stretches(now: Mapping[str, Any], iteration: int = 0) -> dict[str, Any]:
    """The content of a new `environment.json`: the environment, and a list with the first stretch.

    A stretch is a part of a run that was trained without interruption; resuming a run adds one.
    """
    return {**now, "stretches": [{"iteration": iteration, **now}]}


def add_stretch(kept: Mapping[str, Any], now: Mapping[str, Any], iteration: int) -> tuple[dict[str, Any], list[str]]:
    """`environment.json` of a run that is resumed after an iteration, and what differs from the stretch before it.

    A stretch that ended before its first checkpoint, of which no iteration is left, is dropped.
    """
    if iteration == 0:
        return begin_stretches(now), []
    first = {"iteration": 0, **{key: value for key, value in kept.items() if key != "stretches"}}
    known = kept.get("stretches")
    stretches = [each for each in known if _begins_before(each, iteration)] if isinstance(known, list) else []
    stretches = stretches or [first]
    before, after = _decisive(stretches[-1]), _decisive(now)
    changed = [f"{key} {before[key]} → {after[key]}" for key in before if after.get(key, before[key]) != before[key]]
    return {**kept, "stretches": [*stretches, {"iteration": iteration, **now}]}, changed


def _begins_before(stretch: object, iteration: int) -> bool:
    begun = stretch.get("iteration") if isinstance(stretch, dict) else None
    return isinstance(begun, int) and begun < iteration


def _decisive(stretch: Mapping[str, Any]) -> dict[str, str]:
    """The properties of a stretch that can change the last bits of its numbers, as far as they are recorded."""
    parts = re.fullmatch(r"(.*?)(?:, (\d+) threads?)?", str(stretch.get("hardware", "")), re.DOTALL)
    processor, threads = parts.groups() if parts else ("", None)
    found: dict[str, Any] = {
        "device": stretch.get("device"),
        "hardware": processor or None,
        "threads": stretch.get("threads", threads),
        "processes": stretch.get("processes", 1),
    }
    versions = stretch.get("versions")
    found |= versions if isinstance(versions, dict) else {}
    found["Python"] = stretch.get("python")
    code = stretch.get("code")
    found |= code if isinstance(code, dict) else {}
    if isinstance(commit := stretch.get("commit"), str):
        found["commit"] = commit[:12] + (" with uncommitted changes" if stretch.get("uncommitted") else "")
    return {key: str(value)[:100] for key, value in found.items() if value is not None}


def hardware(device: torch.device) -> str:
    """The name of the GPU, or of the processor with the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        name = names[0] if names else name
    return f"{name}, {counted(torch.get_num_threads(), 'thread')}"


def find_commit(package: Path) -> tuple[str | None, bool | None]:
    """The commit of the checkout that the package is the source of, and whether its files differ from that commit.

    Both are None for an installed package. The repository around it may be that of a user's own project, with the
    virtual environment inside: only one that has the package at `src/oneway` is ours.
    """
    root = package.resolve().parents[1]
    if package.resolve() != root / "src" / "oneway" or not (root / ".git").exists():
        return None, None
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--", "src/oneway")
    return commit, None if changes is None else bool(changes)


def _git(folder: Path, *words: str) -> str | None:
    """The output of a git command in a checkout; None where it fails, or git is not installed.

    Variables that point git elsewhere are removed, and the setting that would start a program is switched off.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    variables["GIT_CEILING_DIRECTORIES"] = str(folder.parent)
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *words]
    try:
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
