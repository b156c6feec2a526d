"""The run folder: what a training run leaves behind, and how it is read again."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from oneway import __version__, models
from oneway import config as configuration
from oneway.checkpoint import write_atomically
from oneway.config import Config, Model
from oneway.data.splits import Split
from oneway.errors import UserError

MODEL_FORMAT = 1
MAY_CHANGE = ("data.path", "train.device")
"""Where a run finds its data and computes may differ when it is continued; the data are checked by their split."""


@dataclass(frozen=True)
class Run:
    """A run folder and its configuration. Everything else in it is read when asked for."""

    path: Path
    config: Config

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self.path / "checkpoint"

    @property
    def summary(self) -> dict[str, Any] | None:
        """The result, once the run has ended."""
        file = self.path / "summary.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, in order."""
        file = self.path / "metrics.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.is_file() else []
        # A line without its end was being written when the machine stopped.
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def log(self, **values: Any) -> None:
        """Adds a line to `metrics.jsonl`."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def forget_metrics_after(self, iteration: int) -> None:
        """Drops what a killed run logged past the checkpoint it resumes from."""
        kept = [json.dumps(line) + "\n" for line in self.metrics() if line["iteration"] <= iteration]
        write_atomically(self.path / "metrics.jsonl", "".join(kept).encode())

    def write(self, name: str, values: dict[str, Any]) -> None:
        """A JSON file of the folder."""
        write_atomically(self.path / name, (json.dumps(values, indent=1) + "\n").encode())


def refuse_occupied(path: Path) -> None:
    """A new run wants an empty place: nothing is ever overwritten."""
    if (path / "config.yaml").is_file():
        raise UserError(f"{path}: holds another run. Continue it with --resume, or choose another folder with --out.")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path}: exists and is not a run folder. Choose another folder with --out.")


def start(path: Path, config: Config, split: Split) -> Run:
    """A new run folder, with what is known before the first iteration."""
    refuse_occupied(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        run = Run(path, config)
        run.write("environment.json", environment(config.train.device))
        write_atomically(path / "split.json", split.to_json().encode())
        write_atomically(path / "config.yaml", config.to_yaml().encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}). Choose another folder with --out.") from None
    return run


def open_run(path: Path) -> Run:
    """An existing run folder."""
    file = path / "config.yaml"
    if not file.is_file():
        raise UserError(f"{path}: not a run folder (it has no config.yaml).")
    return Run(path, configuration.build(configuration.read_yaml(file), source=str(file)))


def open_to_resume(path: Path, config: Config) -> Run:
    """An existing run folder that `config` agrees with; a difference is refused and shown."""
    run = open_run(path)
    stored, asked = run.config.flat(), config.flat()
    differing = [key for key in stored if stored[key] != asked[key] and key not in MAY_CHANGE]
    differences = [f"{key}: {stored[key]} → {asked[key]}" for key in differing]
    if differences:
        raise UserError(
            f"{path}: continuing would change the run ({'; '.join(differences)}). "
            "Leave those settings as they were, or start another run with --out."
        )
    return run


def refuse_other_split(run: Run, split: Split) -> None:
    """A resumed run must find the images it was started with."""
    if json.loads((run.path / "split.json").read_text(encoding="utf-8"))["hash"] != split.hash:
        raise UserError(f"{run.path}: the images are not those of split.json; has the data set changed?")


@dataclass(frozen=True)
class TrainedModel:
    """A network with what is needed to use it."""

    network: nn.Module
    classes: tuple[str, ...]
    colours: tuple[tuple[int, int, int], ...]


def save_model(path: Path, trained: TrainedModel, config: Model) -> None:
    """One file to predict from: weights (the normalisation among them), classes and colours."""
    about = {
        "format": MODEL_FORMAT,
        "model": config.model_dump(mode="json"),
        "classes": trained.classes,
        "colours": trained.colours,
    }
    tensors = {name: tensor.cpu().contiguous() for name, tensor in trained.network.state_dict().items()}
    write_atomically(path, safetensors.torch.save(tensors, {"oneway": json.dumps(about)}))


def load_model(path: Path, device: torch.device) -> TrainedModel:
    """The network of a `model.safetensors`, in evaluation mode."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; has the run ended? Continue it with --resume.")
    with safetensors.safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["oneway"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    # The weights come from this file, whatever the run started from.
    config = Model.model_validate({**about["model"], "weights": None})
    network = models.build(config, len(about["classes"]), seed=0)
    network.load_state_dict(tensors)
    colours = tuple((r, g, b) for r, g, b in about["colours"])
    return TrainedModel(network.to(device).eval(), tuple(about["classes"]), colours)


def choose_device(name: str) -> torch.device:
    """The device a configuration names; `auto` takes the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"train.device {name}: no such kind of device. Use auto, cpu, cuda or cuda:1.") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"train.device {name}: only cpu and cuda are supported.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"train.device {name}: {torch.cuda.device_count()} CUDA devices are visible. Use auto or cpu.")
    return device


def environment(device: str) -> dict[str, Any]:
    """Versions, hardware, commit and command: what a number needs beside it."""
    packages = ("torch", "timm", "numpy", "Pillow")
    chosen = choose_device(device)
    hardware = torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else f"{os.cpu_count()} CPU cores"
    return {
        "command": shlex.join([_program(), *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"oneway": __version__, **{name: importlib.metadata.version(name) for name in packages}},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hardware": hardware,
        "commit": _commit(),
    }


def _program() -> str:
    name = Path(sys.argv[0]).name
    return "oneway" if name == "__main__.py" else name


def _commit() -> str | None:
    """The commit of a source checkout; None for an installed package."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
