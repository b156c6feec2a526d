"""timm's depthwise-separable blocks with their shortcut in the last norm.

`fuse` replaces the blocks of EfficientNet, MobileNet and similar networks by these; they compute the same.
"""

from __future__ import annotations

from timm.layers import DropPath
from timm.models._efficientnet_blocks import (
    DepthwiseSeparableConv,
    EdgeResidual,
    InvertedResidual,
    UniversalInvertedResidual,
)
from torch import Tensor, nn


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


SHORTCUTS: dict[type[nn.Module], tuple[type[nn.Module], str]] = {
    DepthwiseSeparableConv: (FusedSeparable, "bn2"),
    InvertedResidual: (FusedInverted, "bn3"),
    UniversalInvertedResidual: (FusedUniversal, "pw_proj.bn"),
    EdgeResidual: (FusedEdge, "bn2"),
}
"""The fused class of each block, and the name of its last norm."""


def can_take_shortcut(block: nn.Module) -> bool:
    """Whether nothing but a sum follows a block's last norm, and no hook observes the modules in between."""
    dropped, projection = block.get_submodule("drop_path"), getattr(block, "pw_proj", None)
    kept = type(dropped) is nn.Identity or (type(dropped) is DropPath and dropped.drop_prob == 0)
    between = [getattr(block, name, None) for name in ("conv_s2d", "dw_end", "layer_scale")]
    between.append(getattr(projection, "aa", None))
    absent = all(each is None or type(each) is nn.Identity for each in between)
    passed = [module for module in (dropped, projection, *between) if module is not None]
    watched = any(module._forward_hooks or module._forward_pre_hooks for module in passed)
    return bool(block.has_skip and kept and absent and not watched)
