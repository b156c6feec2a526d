"""The activations that follow a norm: functions of one number, with a reference and in kernels their two directions.

Backwards they need the number that went in, which a norm computes again: nothing is kept for them.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case)

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from oneway.ops.backend import tl, triton

Activation = Literal["none", "relu", "relu6", "silu", "hard-swish", "gelu"]

_REFERENCES: dict[Activation, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "relu6": F.relu6,
    "silu": F.silu,
    "hard-swish": F.hardswish,
    "gelu": F.gelu,
}


def activate(x: Tensor, activation: Activation) -> Tensor:
    """The activation of a tensor, by PyTorch."""
    return _REFERENCES[activation](x)


@triton.jit
def activated(value, ACTIVATION: tl.constexpr):
    """The activation of numbers in single precision; what is not a number stays so."""
    if ACTIVATION == "relu":
        value = rectified(value, value)
    elif ACTIVATION == "relu6":
        value = tl.where(value > 6, 6.0, rectified(value, value))
    elif ACTIVATION == "silu":
        value = value * tl.sigmoid(value)
    elif ACTIVATION == "hard-swish":
        value = value * _between(value)
    elif ACTIVATION == "gelu":
        value = value * _below(value)
    return value


@triton.jit
def sent_back(value, gradient, ACTIVATION: tl.constexpr):
    """The gradient of what went in, the value, from that of its activation."""
    if ACTIVATION == "relu":
        gradient = rectified(value, gradient)
    elif ACTIVATION == "relu6":
        gradient = tl.where((value <= 0) | (value >= 6), 0.0, gradient)
    elif ACTIVATION == "silu":
        share = tl.sigmoid(value)
        gradient = gradient * share * (1 + value * (1 - share))
    elif ACTIVATION == "hard-swish":
        inside = (value > -3) & (value < 3)
        gradient = gradient * tl.where(inside, value / 3 + 0.5, _between(value))
    elif ACTIVATION == "gelu":
        density = 0.3989422804014327 * tl.exp(-0.5 * value * value)  # 1/√2π
        gradient = gradient * (_below(value) + value * density)
    return gradient


@triton.jit
def rectified(value, passing):
    """What passes where the value is positive, or not a number, so that the latter shows in the result."""
    return tl.where(value <= 0, 0.0, passing)


@triton.jit
def _between(value):
    """0 up to −3, 1 from 3, and straight between."""
    share = value / 6 + 0.5
    return tl.where(share > 1, 1.0, rectified(share, share))


@triton.jit
def _below(value):
    """The share of a normal distribution below a value."""
    return 0.5 + 0.5 * tl.erf(value * 0.7071067811865476)  # 1/√2
