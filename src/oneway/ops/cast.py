"""Cast many tensors in one pass, and their gradients in another, where autocast would take a pass for each.

The backward pass here also joins the gradients that were deferred to a side stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from oneway.ops.side_stream import drop_deferred, join_deferred


def cast_together(tensors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Cast tensors of one dtype to another, differentiably; each keeps its layout and counts its uses."""
    drop_deferred()  # of a step that failed
    found: tuple[Tensor, ...] = _Cast.apply(dtype, *tensors) if tensors else ()
    for tensor in found:
        tensor.uses = Uses()  # type: ignore[attr-defined]
    return found


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is that already."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


class Uses:
    """The number of uses of a tensor that autograd has not differentiated yet.

    Autograd adds up the gradients of several uses as soon as it has them: those must not be deferred.
    """

    def __init__(self) -> None:
        self.count, self.several = 0, False

    def begin(self) -> None:
        """One more use."""
        self.count += 1
        self.several |= self.count > 1

    def end(self) -> bool:
        """One use less, in the backward pass; returns whether it was the only one."""
        alone = not self.several
        self.count -= 1
        self.several &= self.count > 0
        return alone


def uses_of(tensor: Tensor) -> Uses | None:
    """The uses of a tensor that `cast_together` has cast and that needs a gradient; None for any other tensor."""
    return getattr(tensor, "uses", None) if tensor.requires_grad else None


class _Cast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # what a loss does not depend on has no gradient
        ctx.dtype = tensors[0].dtype
        return _copied(tensors, dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        join_deferred()
        sent = iter(_copied([each for each in upstream if each is not None], ctx.dtype))
        return None, *(None if each is None else next(sent) for each in upstream)


def _copied(tensors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    if copies:
        torch._foreach_copy_(copies, list(tensors))
    return tuple(copies)
