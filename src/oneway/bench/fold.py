"""Batch norm folded into the convolutions before it, for networks that only predict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import BatchNormAct2d
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

LOOKS_ONLY = ("__get__", "dim", "size")
"""Functions of a tensor that do not read its values: attributes, and its shape."""


@torch.no_grad()
def fold_batch_norm(model: nn.Module, example: Tensor) -> nn.Module:
    """A copy in evaluation mode that predicts the same with fewer operations.

    A norm is folded where its only input is the output of one convolution, and nothing else reads that output; a norm
    in front of its convolution (pre-activation) stays, unless another convolution leads straight into it. Which those
    are is seen by running `example` (N×3×H×W) through the network.
    """
    folded = deepcopy(model).eval()
    for conv, norm in foldable(folded, example):
        _replace(folded, conv, fuse_conv_bn_eval(conv, norm))
        _replace(folded, norm, norm.act if isinstance(norm, BatchNormAct2d) else nn.Identity())
    return folded


def foldable(model: nn.Module, example: Tensor) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Convolutions, each with the norm that it leads to, and nowhere else. The model is in evaluation mode."""
    passes: dict[nn.Module, list[tuple[Tensor, Tensor]]] = defaultdict(list)

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        passes[module].append((inputs[0], output))

    kinds = nn.Conv2d, nn.BatchNorm2d, BatchNormAct2d
    # By type and not by class: a subclass may do more than its parent.
    hooks = [module.register_forward_hook(note) for module in model.modules() if type(module) in kinds]
    try:
        with _Readers() as readers:
            result = model(example)
    finally:
        for hook in hooks:
            hook.remove()

    once = {module: seen[0] for module, seen in passes.items() if len(seen) == 1}
    norm_of = {id(x): module for module, (x, _) in once.items() if isinstance(module, nn.BatchNorm2d)}
    returned = {id(tensor) for tensor in tree_leaves(result)}
    return [
        (module, norm_of[id(output)])
        for module, (_, output) in once.items()
        if isinstance(module, nn.Conv2d)
        and id(output) in norm_of
        and readers.of[id(output)] == [F.batch_norm]
        and id(output) not in returned
    ]


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Under every name it has."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, name, new)


class _Readers(TorchFunctionMode):
    """Within its block, notes which functions read each tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[int, list[Callable[..., Any]]] = defaultdict(list)
        self.kept: list[Tensor] = []

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(function, "__name__", "") not in LOOKS_ONLY:
            for tensor in tree_leaves((args, kwargs)):
                if isinstance(tensor, Tensor):
                    self.of[id(tensor)].append(function)
                    self.kept.append(tensor)  # while it exists, no other has its identity
        return function(*args, **(kwargs or {}))
