"""Fused versions of timm's modules, for `fuse`; imported only where timm is loaded."""

from __future__ import annotations

from timm.layers import GELU, BatchNormAct2d, DropPath
from timm.models import FeatureListNet
from timm.models._efficientnet_blocks import (
    DepthwiseSeparableConv,
    EdgeResidual,
    InvertedResidual,
    UniversalInvertedResidual,
)
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import Tensor, nn

from oneway.models import fuse
from oneway.models.fuse import FusedNorm, FusedSumNorm, activation_of, become, is_usual, is_watched
from oneway.models.wrn import Block, WideResNet


class FusedBasicBlock(BasicBlock):  # type: ignore[misc]
    """A block whose second norm takes the shortcut."""

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.aa(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(x), shortcut)


class FusedBottleneck(Bottleneck):  # type: ignore[misc]
    """A block whose third norm takes the shortcut."""

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.aa(self.bn2(self.conv2(self.bn1(self.conv1(x)))))
        return self.bn3(self.conv3(x), shortcut)


class FusedSeparable(DepthwiseSeparableConv):  # type: ignore[misc]
    """A block whose second norm takes the shortcut."""

    def forward(self, x: Tensor) -> Tensor:
        return self.bn2(self.conv_pw(self.se(self.aa(self.bn1(self.conv_dw(x))))), x)


class FusedInverted(InvertedResidual):  # type: ignore[misc]
    """A block whose third norm takes the shortcut."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_dw(self.bn1(self.conv_pw(x)))
        return self.bn3(self.conv_pwl(self.se(self.aa(self.bn2(y)))), x)


class FusedUniversal(UniversalInvertedResidual):  # type: ignore[misc]
    """A block whose projecting norm takes the shortcut."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.se(self.dw_mid(self.pw_exp(self.dw_start(x))))
        return self.pw_proj.bn(self.pw_proj.conv(y), x)


class FusedEdge(EdgeResidual):  # type: ignore[misc]
    """A block whose second norm takes the shortcut."""

    def forward(self, x: Tensor) -> Tensor:
        return self.bn2(self.conv_pwl(self.se(self.aa(self.bn1(self.conv_exp(x))))), x)


class FusedWideBlock(Block):
    """A block whose first norm adds up the previous block's two terms; its own two are left to the next block."""

    def forward(self, terms: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        x, activated = self.norm1(*terms)
        residual = self.conv2(self.norm2(self.conv1(activated)))
        return residual, x if self.shortcut is None else self.shortcut(activated)


class FusedWideResNet(WideResNet):
    """A Wide ResNet whose last norm adds up the last block's two terms."""

    def forward(self, x: Tensor) -> Tensor:
        terms = self.groups((self.stem(self.normalise(x)),))
        _, x = self.norm(*terms)
        return self.head(x.mean(dim=(2, 3)))


SHORTCUTS: dict[type[nn.Module], tuple[type[nn.Module], str]] = {
    DepthwiseSeparableConv: (FusedSeparable, "bn2"),
    InvertedResidual: (FusedInverted, "bn3"),
    UniversalInvertedResidual: (FusedUniversal, "pw_proj.bn"),
    EdgeResidual: (FusedEdge, "bn2"),
}
"""The fused class of each block, and the name of its last norm."""


def _fuse_activated(norm: nn.BatchNorm2d) -> None:
    """Fuse a norm of timm's that includes its activation."""
    activation = activation_of(norm.get_submodule("act"))
    usual = is_usual(norm) and type(norm.get_submodule("drop")) is nn.Identity
    if usual and activation is not None:
        become(norm, FusedNorm, activation)


def _fuse_sums(network: WideResNet) -> None:
    """Fuse a Wide ResNet: the norms before its blocks and before its head take over the sums."""
    blocks = [block for block in network.modules() if type(block) is Block]
    norms = [network.norm, *(block.norm1 for block in blocks)]
    for norm in norms:
        _fuse_activated(norm)
    if all(type(norm) is FusedNorm for norm in norms) and not any(map(is_watched, network.groups.modules())):
        for norm in norms:
            norm.__class__ = FusedSumNorm
        for block in blocks:
            block.__class__ = FusedWideBlock
        network.__class__ = FusedWideResNet


def _fuse_shortcut(block: nn.Module) -> None:
    """Fuse a block that ends with a sum: its last norm takes over the sum."""
    kind, last = SHORTCUTS[type(block)]
    norm = block.get_submodule(last)
    if type(norm) is FusedNorm and norm.activation == "none" and _can_take_shortcut(block):
        block.__class__ = kind


def _can_take_shortcut(block: nn.Module) -> bool:
    """Whether nothing but a sum follows a block's last norm, and no hook observes the modules in between."""
    dropped, projection = block.get_submodule("drop_path"), getattr(block, "pw_proj", None)
    kept = type(dropped) is nn.Identity or (type(dropped) is DropPath and dropped.drop_prob == 0)
    between = [getattr(block, name, None) for name in ("conv_s2d", "dw_end", "layer_scale")]
    between.append(getattr(projection, "aa", None))
    absent = all(each is None or type(each) is nn.Identity for each in between)
    passed = [module for module in (dropped, projection, *between) if module is not None]
    watched = any(module._forward_hooks or module._forward_pre_hooks for module in passed)
    return bool(block.has_skip and kept and absent and not watched)


fuse.BLOCKS.update({BasicBlock: (FusedBasicBlock, 2), Bottleneck: (FusedBottleneck, 3)})
fuse.ACTIVATIONS[GELU] = "gelu"
fuse.STEMS.add(ResNet)
fuse.SEQUENCES.add(FeatureListNet)
fuse.OTHERS.update({BatchNormAct2d: _fuse_activated, WideResNet: _fuse_sums})
fuse.LAST.update(dict.fromkeys(SHORTCUTS, _fuse_shortcut))
