"""The choice between an operation's Triton kernel and its reference.

An operation is one function. Its reference, plain PyTorch, is the definition and runs anywhere; its kernel gives the
same result up to rounding and runs on a GPU, or on a CPU in Triton's interpreter (`TRITON_INTERPRET=1`). Without
Triton, kernels are never called.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

try:
    import triton
    import triton.language as tl
except ImportError:  # on a Mac, say: decorators and constants of kernels still have to mean something

    def _jit(function: Any = None, **options: Any) -> Any:
        return _jit if function is None else function

    triton, tl = SimpleNamespace(jit=_jit), SimpleNamespace(constexpr=lambda value: value)
    AVAILABLE = INTERPRETED = False
else:
    AVAILABLE, INTERPRETED = True, bool(triton.knobs.runtime.interpret)

__all__ = ["AVAILABLE", "INTERPRETED", "kernel_takes", "kernels_run", "references", "tl", "triton"]

FLOATS = (torch.float32, torch.bfloat16, torch.float16)

_references_only = ContextVar("references_only", default=False)


@contextmanager
def references(only: bool = True) -> Iterator[None]:
    """Within the block, every operation uses its reference."""
    token = _references_only.set(only)
    try:
        yield
    finally:
        _references_only.reset(token)


def kernels_run(device: torch.device) -> bool:
    """Whether operations on a device use kernels."""
    return AVAILABLE and not _references_only.get() and (device.type == "cuda" or INTERPRETED)


def kernel_takes(*tensors: Tensor) -> bool:
    """Whether a kernel can take floating-point tensors; none supports forward-mode differentiation."""
    return kernels_run(tensors[0].device) and all(
        tensor.dtype in FLOATS and forward_ad.unpack_dual(tensor).tangent is None for tensor in tensors
    )
