"""The training state as named tensors, and its restoration from them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from oneway.engine.state import TrainingState
from oneway.runs.checkpoint.tensors import Expected, expected_of

ADAM = ("exp_avg", "exp_avg_sq")
MOMENTS = {torch.optim.Adam: ADAM, torch.optim.AdamW: ADAM, torch.optim.SGD: ("momentum_buffer",)}
"""The state that an optimiser keeps for each parameter, in its shape; Adam also counts its steps."""

SKIPS = "skips"  # how many steps have been skipped, and how many in a row


def tensors_of(state: TrainingState) -> dict[str, Tensor]:
    """The state as named tensors."""
    content = {**_models(state), SKIPS: state.skips}
    for name, parameter in _parameters(state):
        for key, tensor in state.optimiser.state[parameter].items():
            if tensor is not None:  # no momentum before the first step
                content[f"optimiser.{key}.{name}"] = tensor
    return content


def restore(state: TrainingState, content: Mapping[str, Tensor]) -> None:
    """Restore a state from named tensors, in place."""
    for role, model in _roles(state).items():
        model.load_state_dict(_below(content, f"{role}."))
    state.skips.copy_(content[SKIPS])
    kept = {key: _below(content, f"optimiser.{key}.") for key in (*_moments(state), "step")}
    for name, parameter in _parameters(state):
        state.optimiser.state[parameter] = {
            key: _laid_out_like(parameter, values[name]) for key, values in kept.items() if name in values
        }


def bytes_needed(state: TrainingState) -> int:
    """The size of a checkpoint without its header."""
    return sum(shape.numel() * dtype.itemsize for part in expected(state) for shape, dtype in part.values())


def expected(state: TrainingState) -> tuple[Expected, Expected]:
    """The required and the optional tensors of a checkpoint: an optimiser has no state before its first step."""
    optional: dict[str, tuple[torch.Size, torch.dtype]] = {}
    moments = _moments(state)
    for name, parameter in _parameters(state):
        optional[f"optimiser.step.{name}"] = (torch.Size(()), torch.float32)
        optional |= {f"optimiser.{key}.{name}": (parameter.shape, parameter.dtype) for key in moments}
    return expected_of({**_models(state), SKIPS: state.skips}), optional


def _moments(state: TrainingState) -> tuple[str, ...]:
    return next(names for kind, names in MOMENTS.items() if isinstance(state.optimiser, kind))


def _roles(state: TrainingState) -> dict[str, nn.Module]:
    """Networks by the names that checkpoints give them: `student`, `teacher`; a second student is `student2`."""
    roles = {f"student{_number(which)}": student for which, student in enumerate(state.models.students)}
    for which, teacher in enumerate(state.models.teachers):
        if teacher not in state.models.students and not state.models.frozen:
            roles[f"teacher{_number(which)}"] = teacher
    # No attribute of a network has this name, so it cannot collide with the first student's unprefixed parameters.
    return roles | {f"training-head{_number(which)}": head for which, head in enumerate(state.models.heads)}


def _number(which: int) -> str:
    return str(which + 1) if which else ""


def _models(state: TrainingState) -> dict[str, Tensor]:
    roles = _roles(state).items()
    return {f"{role}.{name}": tensor for role, model in roles for name, tensor in model.state_dict().items()}


def _parameters(state: TrainingState) -> list[tuple[str, nn.Parameter]]:
    """The parameters of all learning networks, by name; those of the first student have no prefix."""
    prefixes = {role: "" if role == "student" else f"{role}." for role in _roles(state) if "teacher" not in role}
    return [
        (f"{prefix}{name}", parameter)
        for role, prefix in prefixes.items()
        for name, parameter in _roles(state)[role].named_parameters()
    ]


def _laid_out_like(parameter: Tensor, value: Tensor) -> Tensor:
    """A copy on the parameter's device and in its memory format, which fused optimisers require."""
    if value.ndim == 0:
        return value.to(parameter.device, copy=True)
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _below(content: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in content.items() if name.startswith(prefix)}
