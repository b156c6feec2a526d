"""The state of a run at an iteration, on disk: every tensor exact, every write all or nothing.

A checkpoint is one safetensors file named by its iteration. Randomness needs no place in it: an iteration's draws are a
function of its number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from oneway.step import TrainingState

FORMAT = 1
KEPT = 2
OPTIMISER_STATE = ("step", "exp_avg", "exp_avg_sq", "momentum_buffer")
"""What Adam and stochastic gradient descent remember of a parameter."""


def save(folder: Path, iteration: int, seconds: float, state: TrainingState) -> Path:
    """Writes the checkpoint of an iteration and drops those older than the last two."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{iteration:08d}.safetensors"
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors_of(state).items()}
    metadata = {"oneway": json.dumps({"format": FORMAT, "iteration": iteration, "seconds": seconds})}
    write_atomically(path, safetensors.torch.save(tensors, metadata))
    for old in existing(folder)[:-KEPT]:
        old.unlink()
    return path


def existing(folder: Path) -> list[Path]:
    """Checkpoints in a folder, oldest first."""
    return sorted(folder.glob("[0-9]*.safetensors"))


def load(path: Path, state: TrainingState) -> tuple[int, float]:
    """Restores a checkpoint; returns its iteration and the seconds trained until then."""
    with safetensors.safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["oneway"])
        restore(state, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 (not a dict)
    return about["iteration"], about["seconds"]


def tensors_of(state: TrainingState) -> dict[str, Tensor]:
    """The state as named tensors."""
    tensors = {f"student.{name}": tensor for name, tensor in state.student.state_dict().items()}
    if state.teacher is not state.student:
        tensors |= {f"teacher.{name}": tensor for name, tensor in state.teacher.state_dict().items()}
    for name, parameter in state.student.named_parameters():
        for key, tensor in state.optimiser.state[parameter].items():
            if tensor is not None:  # no momentum before the first step
                tensors[f"optimiser.{key}.{name}"] = tensor
    return tensors


def restore(state: TrainingState, tensors: Mapping[str, Tensor]) -> None:
    """Puts named tensors back in their places."""
    state.student.load_state_dict(_below(tensors, "student."))
    if state.teacher is not state.student:
        state.teacher.load_state_dict(_below(tensors, "teacher."))
    moments = {key: _below(tensors, f"optimiser.{key}.") for key in OPTIMISER_STATE}
    for name, parameter in state.student.named_parameters():
        state.optimiser.state[parameter] = {
            key: _laid_out_like(parameter, values[name]) for key, values in moments.items() if name in values
        }


def _laid_out_like(parameter: Tensor, value: Tensor) -> Tensor:
    """On the parameter's device and in its memory format: fused optimisers walk both in step."""
    if value.ndim == 0:
        return value.to(parameter.device)
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def write_atomically(path: Path, content: bytes) -> None:
    """The file has its old content or all of the new one, whenever the machine stops."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
