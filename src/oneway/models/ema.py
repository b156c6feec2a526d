"""The mean teacher: an exponential moving average (EMA) of the student's parameters and batch-norm statistics.

The simple teacher needs no code: it is the student itself, with population statistics and without gradient.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from oneway.ops.ema import ema_update


def init_ema(student: nn.Module) -> nn.Module:
    """A frozen copy of the student, from which the EMA starts."""
    return deepcopy(student).eval().requires_grad_(False)


@torch.no_grad()
def update_ema(teacher: nn.Module, student: nn.Module, share: Tensor) -> None:
    """θ' ← θ' + share·(θ − θ'), for parameters and for running statistics; counters are copied.

    The share, 1 − decay, is a tensor on the device: it is zero where a step was skipped.
    """
    averages, values = teacher.state_dict(), student.state_dict()
    floating = [name for name, average in averages.items() if average.is_floating_point()]
    ema_update(teacher, [averages[name] for name in floating], [values[name] for name in floating], share)
    if counters := averages.keys() - floating:
        torch._foreach_copy_([averages[name] for name in counters], [values[name] for name in counters])
