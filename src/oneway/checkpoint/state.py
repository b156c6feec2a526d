"""The state of a run as named tensors, and back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from oneway.checkpoint.tensors import Expected, expected_of
from oneway.step import TrainingState

MOMENTS = {torch.optim.Adam: ("exp_avg", "exp_avg_sq"), torch.optim.SGD: ("momentum_buffer",)}
"""What an optimiser remembers of a parameter, in its shape; Adam also counts its steps."""

SKIPS = "skips"
"""How many steps have been skipped, and how many in a row."""


def tensors_of(state: TrainingState) -> dict[str, Tensor]:
    """The state as named tensors."""
    content = {**_models(state), SKIPS: state.skips}
    for name, parameter in state.student.named_parameters():
        for key, tensor in state.optimiser.state[parameter].items():
            if tensor is not None:  # no momentum before the first step
                content[f"optimiser.{key}.{name}"] = tensor
    return content


def restore(state: TrainingState, content: Mapping[str, Tensor]) -> None:
    """Puts named tensors back in their places."""
    state.student.load_state_dict(_below(content, "student."))
    if state.teacher is not state.student:
        state.teacher.load_state_dict(_below(content, "teacher."))
    if SKIPS in content:
        state.skips.copy_(content[SKIPS])
    remembered = {key: _below(content, f"optimiser.{key}.") for key in (*_moments(state), "step")}
    for name, parameter in state.student.named_parameters():
        state.optimiser.state[parameter] = {
            key: _laid_out_like(parameter, values[name]) for key, values in remembered.items() if name in values
        }


def bytes_needed(state: TrainingState) -> int:
    """Of a checkpoint, give or take its header."""
    return sum(shape.numel() * dtype.itemsize for part in expected(state) for shape, dtype in part.values())


def expected(state: TrainingState) -> tuple[Expected, Expected]:
    """What a checkpoint of this state must hold, and what it may: an optimiser begins with no memory."""
    optional = {SKIPS: (state.skips.shape, state.skips.dtype)}  # not in format 1
    for name, parameter in state.student.named_parameters():
        optional[f"optimiser.step.{name}"] = (torch.Size(()), torch.float32)
        optional |= {f"optimiser.{key}.{name}": (parameter.shape, parameter.dtype) for key in _moments(state)}
    return expected_of(_models(state)), optional


def _models(state: TrainingState) -> dict[str, Tensor]:
    models = {"student": state.student}
    if state.teacher is not state.student:
        models["teacher"] = state.teacher
    return {f"{role}.{name}": tensor for role, model in models.items() for name, tensor in model.state_dict().items()}


def _moments(state: TrainingState) -> tuple[str, ...]:
    return MOMENTS[type(state.optimiser)]


def _laid_out_like(parameter: Tensor, value: Tensor) -> Tensor:
    """On the parameter's device and in its memory format: fused optimisers walk both in step."""
    if value.ndim == 0:
        return value.to(parameter.device, copy=True)
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _below(content: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in content.items() if name.startswith(prefix)}
