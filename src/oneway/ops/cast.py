"""Many tensors cast in one pass, and their gradients in another, where autocast would take a pass for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def cast_together(tensors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The tensors, all of one dtype, in another one; each keeps its layout."""
    found: tuple[Tensor, ...] = _Cast.apply(dtype, *tensors) if tensors else ()
    return found


class _Cast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # what a loss does not depend on has no gradient
        ctx.dtype = tensors[0].dtype
        return _copied(tensors, dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        sent = iter(_copied([each for each in upstream if each is not None], ctx.dtype))
        return None, *(None if each is None else next(sent) for each in upstream)


def _copied(tensors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    if copies:
        torch._foreach_copy_(copies, list(tensors))
    return tuple(copies)
