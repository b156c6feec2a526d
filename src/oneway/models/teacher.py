"""The mean teacher: a moving average of the student, parameters and batch-norm statistics alike.

The simple teacher needs no code: it is the student itself, read with population statistics and without gradient.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn


def mean_teacher(student: nn.Module) -> nn.Module:
    """A frozen copy to start the average from."""
    return deepcopy(student).eval().requires_grad_(False)


@torch.no_grad()
def update_mean_teacher(teacher: nn.Module, student: nn.Module, decay: float) -> None:
    """θ' ← decay·θ' + (1 − decay)·θ, for parameters and for running statistics; counters are copied."""
    averages, values = teacher.state_dict(), student.state_dict()
    floating = [name for name, average in averages.items() if average.is_floating_point()]
    torch._foreach_lerp_([averages[name] for name in floating], [values[name] for name in floating], 1 - decay)
    for name in averages.keys() - floating:
        averages[name].copy_(values[name])
