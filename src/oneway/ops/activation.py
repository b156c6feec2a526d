"""The activations that follow a norm, elementwise: a reference, and the forward and backward functions of kernels.

The backward function needs the input, which a norm recomputes: nothing is saved for it.
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
    """The activation of values in single precision; NaN stays NaN."""
    if ACTIVATION == "relu":
        value = rectified(value, value)
    elif ACTIVATION == "relu6":
        value = tl.where(value > 6, 6.0, rectified(value, value))
    elif ACTIVATION == "silu":
        value = value * tl.sigmoid(value)
    elif ACTIVATION == "hard-swish":
        value = value * _hard_sigmoid(value)
    elif ACTIVATION == "gelu":
        value = value * _normal_cdf(value)
    return value


@triton.jit
def activation_backward(value, gradient, ACTIVATION: tl.constexpr):
    """The gradient of the input `value`, from the gradient of its activation."""
    if ACTIVATION == "relu":
        gradient = rectified(value, gradient)
    elif ACTIVATION == "relu6":
        gradient = tl.where((value <= 0) | (value >= 6), 0.0, gradient)
    elif ACTIVATION == "silu":
        share = tl.sigmoid(value)
        gradient = gradient * share * (1 + value * (1 - share))
    elif ACTIVATION == "hard-swish":
        inside = (value > -3) & (value < 3)
        gradient = gradient * tl.where(inside, value / 3 + 0.5, _hard_sigmoid(value))
    elif ACTIVATION == "gelu":
        density = 0.3989422804014327 * tl.exp(-0.5 * value * value)  # 1/√2π
        gradient = gradient * (_normal_cdf(value) + value * density)
    return gradient


@triton.jit
def rectified(value, passing):
    """`passing` where the value is positive or NaN, so that NaN shows in the result; 0 elsewhere."""
    return tl.where(value <= 0, 0.0, passing)


@triton.jit
def _hard_sigmoid(value):
    """Hard sigmoid: 0 up to −3, 1 from 3, linear between."""
    share = value / 6 + 0.5
    return tl.where(share > 1, 1.0, rectified(share, share))


@triton.jit
def _normal_cdf(value):
    """The cumulative distribution function of the standard normal distribution."""
    return 0.5 + 0.5 * tl.erf(value * 0.7071067811865476)  # 1/√2
