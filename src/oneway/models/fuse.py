"""Fuse batch norms with the sums and activations around them, in a network that was built without fusion.

Modules keep their places, names and parameters, so optimisers, checkpoints and copies are unaffected. A batch norm
becomes a `FusedNorm`, the activation after it an identity, and residual blocks pass their shortcut to the last norm;
blocks of a Wide ResNet leave their sum to the next block. The network computes the same function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from oneway import ops
from oneway.models import resnet
from oneway.models.precision import become_castable
from oneway.models.stem import become_depthwise, become_stem


class FusedNorm(nn.BatchNorm2d):
    """Batch norm, fused with the sum and the activation after it, if there are any."""

    activation: ops.Activation

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return ops.norm(x, self, self.activation, residual)


class FusedSumNorm(FusedNorm):
    """A sum of one or two terms, and its batch norm."""

    def forward(self, a: Tensor, b: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return ops.sum_norm(a, b, self, self.activation)


class FusedNormPool(FusedNorm):
    """Batch norm, ReLU, and the max-pool of a ResNet's stem."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        assert residual is None
        return ops.norm_pool(x, self)


class FusedPlainBlock(resnet.BasicBlock):
    """A basic block of our own ResNets whose second norm adds the shortcut."""

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.bn2(self.conv2(self.bn1(self.conv1(x))), shortcut)


BLOCKS: dict[type[nn.Module], tuple[type[nn.Module], int]] = {
    resnet.BasicBlock: (FusedPlainBlock, 2),
}
"""The fused class of each residual block, and its number of norms. `fuse_timm` adds rows here and below."""

ACTIVATIONS: dict[type[nn.Module], ops.Activation] = {
    nn.Identity: "none",
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.SiLU: "silu",
    nn.Hardswish: "hard-swish",
    nn.GELU: "gelu",
}

STEMS: set[type[nn.Module]] = {resnet.ResNet}
SEQUENCES: set[type[nn.Module]] = {nn.Sequential}
"""Modules that call their children one after another."""

OTHERS: dict[type[nn.Module], Callable[[Any], None]] = {}
"""Modules with a fusion function of their own."""

LAST: dict[type[nn.Module], Callable[[Any], None]] = {}
"""Modules with a fusion function that needs all norms to be fused already."""


def fuse(network: nn.Module) -> nn.Module:
    """Fuse the norms of a network of ours or timm's, in place.

    Not for unknown networks: these may call the children of a Sequential one by one and miss an activation.
    """
    if "timm" in sys.modules:  # else no module is one of timm's, and it takes longer to import than PyTorch
        import oneway.models.fuse_timm  # noqa: F401 (fills the tables)
    for module in network.modules():
        if type(module) in BLOCKS:
            _fuse_block(module)
        elif type(module) in STEMS:
            _fuse_stem(module)
        elif type(module) in SEQUENCES:
            _fuse_neighbours(module)
        elif type(module) in OTHERS:
            OTHERS[type(module)](module)
    for module in network.modules():
        if _is_norm(module):
            become(module, FusedNorm)
        elif isinstance(module, nn.Conv2d):
            become_depthwise(module)
            become_stem(module)
        become_castable(module)
    for module in network.modules():
        if type(module) in LAST:
            LAST[type(module)](module)
    return network


def for_prediction(network: nn.Module) -> nn.Module:
    """Prepare a network for prediction on a GPU under autocast: weights are cast once, not at every call.

    Norms are not folded into convolutions: cuDNN adds a bias in a pass of its own, and ReLU and sum take further ones.
    A fused norm is one pass for all of them.
    """
    network = fuse(network.eval().requires_grad_(False).to(memory_format=torch.channels_last))
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.to(torch.bfloat16)
    return network


def _fuse_block(block: nn.Module) -> None:
    """Fuse a residual block without extras: norms take over the ReLUs, and the last norm the sum as well."""
    kind, count = BLOCKS[type(block)]
    norms = [block.get_submodule(f"bn{k}") for k in range(1, count + 1)]
    *inner, last = (block.get_submodule(f"act{k}") for k in range(1, count + 1))
    extras = kind is not FusedPlainBlock and (
        type(block.drop_block) is not nn.Identity or block.se is not None or block.drop_path is not None
    )
    rectified = all(map(_is_relu, inner)) and (_is_relu(last) or type(last) is nn.Identity)
    if all(map(_is_norm, norms)) and rectified and not extras:
        for k in range(1, count + 1):
            _fuse_pair(block, f"bn{k}", f"act{k}")
        block.__class__ = kind


def _fuse_stem(network: nn.Module) -> None:
    """Fuse a ResNet's stem: the norm takes over the ReLU and the max-pool."""
    norm, pool = network.get_submodule("bn1"), network.get_submodule("maxpool")
    if _is_norm(norm) and _is_relu(network.get_submodule("act1")):
        _fuse_pair(network, "bn1", "act1")
        if type(pool) is nn.MaxPool2d and (pool.kernel_size, pool.stride, pool.padding) == (3, 2, 1):
            become(norm, FusedNormPool, "relu")
            network._modules["maxpool"] = nn.Identity()


def _fuse_neighbours(sequence: nn.Module) -> None:
    """Fuse each norm in a sequence with the activation that follows it."""
    for (name, norm), (following, activation) in pairwise(list(sequence._modules.items())):
        shown = name in getattr(sequence, "return_layers", ())
        if _is_norm(norm) and activation_of(activation) is not None and not shown:
            _fuse_pair(sequence, name, following)


def _fuse_pair(parent: nn.Module, norm: str, activation: str) -> None:
    found = activation_of(parent.get_submodule(activation))
    assert found is not None
    become(parent.get_submodule(norm), FusedNorm, found)
    if found != "none":
        parent._modules[activation] = nn.Identity()


def become(norm: nn.Module, kind: type[FusedNorm], activation: ops.Activation = "none") -> None:
    """Turn a norm into a fused one."""
    norm.__class__ = kind
    norm.activation = activation  # type: ignore[assignment]


def _is_norm(module: nn.Module | None) -> bool:
    """Whether `FusedNorm` can replace a module: a plain batch norm, no subclass."""
    return type(module) is nn.BatchNorm2d and is_usual(module)


def is_usual(norm: nn.BatchNorm2d) -> bool:
    """Whether a norm learns scale and shift, and averages exponentially."""
    return norm.affine and norm.momentum is not None and not is_watched(norm)


def _is_relu(module: nn.Module | None) -> bool:
    return type(module) is nn.ReLU and not is_watched(module)


def activation_of(module: nn.Module | None) -> ops.Activation | None:
    """The activation of a module, if a norm can take it over; else None."""
    exact = getattr(module, "approximate", "none") == "none"
    return ACTIVATIONS.get(type(module)) if module is not None and exact and not is_watched(module) else None


def is_watched(module: nn.Module) -> bool:
    """Whether a module has hooks, which must see its output before the activation."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)
