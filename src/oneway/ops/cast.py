"""Many tensors cast in one pass, and their gradients in another, where autocast would take a pass for each.

Whoever computes a gradient of theirs on a second stream need not wait for it: this is where all are waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from oneway.ops.beside import forget_others, wait_for_others


def cast_together(tensors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The tensors, all of one dtype, in another one; each keeps its layout, and counts its uses."""
    forget_others()  # of a step that failed
    found: tuple[Tensor, ...] = _Cast.apply(dtype, *tensors) if tensors else ()
    for tensor in found:
        tensor.uses = Uses()  # type: ignore[attr-defined]
    return found


class Uses:
    """How often a tensor is used by what is yet to be differentiated.

    Autograd adds up the gradients of several uses as soon as it has them: they must not be still under way.
    """

    def __init__(self) -> None:
        self.count, self.several = 0, False

    def begin(self) -> None:
        """One more use."""
        self.count += 1
        self.several |= self.count > 1

    def end(self) -> bool:
        """One less, on the way back; whether it was the only one."""
        alone = not self.several
        self.count -= 1
        self.several &= self.count > 0
        return alone


def uses_of(tensor: Tensor) -> Uses | None:
    """Of a tensor that was cast with others, and has a gradient; None of any other."""
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
        wait_for_others()
        sent = iter(_copied([each for each in upstream if each is not None], ctx.dtype))
        return None, *(None if each is None else next(sent) for each in upstream)


def _copied(tensors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    if copies:
        torch._foreach_copy_(copies, list(tensors))
    return tuple(copies)
