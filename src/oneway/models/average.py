"""The mean teacher: a moving average of the student, parameters and batch-norm statistics alike.

The simple teacher needs no code: it is the student itself, read with population statistics and without gradient.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from oneway.ops.moving import move


def average_of(student: nn.Module) -> nn.Module:
    """A frozen copy to start the average from."""
    return deepcopy(student).eval().requires_grad_(False)


@torch.no_grad()
def update_average(teacher: nn.Module, student: nn.Module, share: Tensor) -> None:
    """θ' ← θ' + share·(θ − θ'), for parameters and for running statistics; counters are copied.

    The share, 1 − decay, lies on the device: it is zero where a step was skipped.
    """
    averages, values = teacher.state_dict(), student.state_dict()
    floating = [name for name, average in averages.items() if average.is_floating_point()]
    move(teacher, [averages[name] for name in floating], [values[name] for name in floating], share)
    if counters := averages.keys() - floating:
        torch._foreach_copy_([averages[name] for name in counters], [values[name] for name in counters])
