"""Plain vision transformers of timm (DINOv2, DINOv3, CLIP and their kin) as encoders of a network that segments.

Shapes: N images of H×W pixels; h×w patches cover them, the last ones padded; tokens have D channels.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import RotaryEmbeddingCat, RotaryEmbeddingDinoV3, resample_abs_pos_embed
from timm.models import is_model_in_modules
from torch import Tensor, nn

from oneway import ops
from oneway.common.errors import UserError
from oneway.models.encoder import Encoder, refuse_unknown
from oneway.models.image import ImageModel
from oneway.models.sampling import cubic, sample
from oneway.models.swiftnet import norm_relu_conv

STRIDES = (4, 8, 16, 32)
FEATURES = 128
WAY_OUT = (
    "What works, among others: vit_small_patch14_dinov2 (with --model.backbone none), vit_base_patch14_dinov2, "
    "vit_small_patch16_dinov3, vit_base_patch16_clip_224. Convolutional ones are for --model.name swiftnet."
)


class TokenEncoder(Encoder):
    """The patch tokens behind four blocks, evenly spaced, the last one among them: four N×D×h×w maps, normalised.

    Images are padded on the right and below, with their mean colour, to whole patches. Position embeddings are brought
    to the grid as timm does it: bicubic and antialiased.
    """

    def __init__(self, backbone: str) -> None:
        refuse_unknown(backbone)
        if not is_model_in_modules(backbone, ["vision_transformer", "eva"]):
            raise UserError(f"model.backbone {backbone}: is no plain vision transformer. {WAY_OUT}")
        super().__init__(backbone, num_classes=0, global_pool="", dynamic_img_size=True)
        _refuse_unfit(self.net, backbone)
        depth = len(self.net.blocks)
        self.chosen = tuple(depth * quarter // 4 - 1 for quarter in (1, 2, 3, 4))
        self.channels = (self.net.embed_dim,) * 4
        self.patch: tuple[int, int] = self.net.patch_embed.patch_size

    def forward(self, x: Tensor) -> list[Tensor]:
        net = self.net
        below, right = (
            cells_of(pixels, side) * side - pixels for pixels, side in zip(x.shape[-2:], self.patch, strict=True)
        )
        x = net.patch_embed(F.pad(x, (0, right, 0, below)))
        _, rows, columns, _ = x.shape
        x = net.norm_pre(self._with_places(x))
        rope = getattr(net, "rope", None)
        turned = {} if rope is None else {"rope": rotations(rope, (rows, columns))}
        found = []
        for index, block in enumerate(net.blocks):
            x = block(x, **turned)
            if index in self.chosen:
                tokens = net.norm(x)[:, net.num_prefix_tokens :]
                found.append(tokens.mT.contiguous().unflatten(2, (rows, columns)))
        return found

    def fitted(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Pretrained tensors, with the position embeddings resampled to this network's grid by timm's own function."""
        places, own = tensors.get("pos_embed"), self.net.pos_embed
        if places is None or own is None or places.ndim != 3 or places.shape[::2] != own.shape[::2]:
            return tensors
        side = math.isqrt(max(0, places.shape[1] - self._placed))
        if side == 0 or side * side + self._placed != places.shape[1] or not places.is_floating_point():
            return tensors
        grid = list(self.net.patch_embed.grid_size)
        return tensors | {"pos_embed": resample_abs_pos_embed(places, grid, [side, side], self._placed)}

    def layers_behind(self) -> dict[nn.Parameter, int]:
        """The depth of each parameter below the decoder: 1 for the last block, most for the embeddings."""
        depth = len(self.net.blocks)
        found = dict.fromkeys(self.net.parameters(), depth + 1) | dict.fromkeys(self.net.norm.parameters(), 1)
        for index, block in enumerate(self.net.blocks):
            found |= dict.fromkeys(block.parameters(), depth - index)
        return found

    def _with_places(self, x: Tensor) -> Tensor:
        """Tokens with position embeddings: class and register tokens, then patches."""
        net, (count, rows, columns, _) = self.net, x.shape
        first = [token.expand(count, -1, -1) for token in (net.cls_token, net.reg_token) if token is not None]
        x = x.flatten(1, 2)
        if net.pos_embed is None:
            return torch.cat([*first, x], dim=1)
        places = resampled(net.pos_embed, net.patch_embed.grid_size, (rows, columns), self._placed)
        if self._placed:
            return torch.cat([*first, x], dim=1) + places
        return torch.cat([*first, x + places], dim=1)

    @property
    def _placed(self) -> int:
        """The number of position embeddings of tokens before the patches (class, registers)."""
        return 0 if self.net.no_embed_class else int(self.net.num_prefix_tokens)


class ViT(ImageModel):
    """Logits at stride 4 of RGB images in [0, 1] of any size: a vision transformer, and a small decoder after DPT.

    Each map is projected where the patches are, and sampled on a grid that covers the picture without its padding:
    logits are aligned with the pixels, whatever the size. From coarse to fine, a sum and a convolution join them.
    """

    def __init__(self, classes: int, backbone: str) -> None:
        encoder = TokenEncoder(backbone)
        super().__init__(encoder.mean, encoder.deviation)
        self.encoder = encoder
        # Without a bias, which the batch norm that follows would cancel.
        self.projections = nn.ModuleList(nn.Conv2d(channels, FEATURES, 1, bias=False) for channels in encoder.channels)
        self.blends = nn.ModuleList(norm_relu_conv(FEATURES, FEATURES, kernel=3) for _ in STRIDES[1:])
        self.head = norm_relu_conv(FEATURES, classes, kernel=1, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        *finer, x = (
            self._over_picture(project(tokens), height, width, stride)
            for project, tokens, stride in zip(self.projections, self.encoder(self.normalise(x)), STRIDES, strict=True)
        )
        for blend, skip in zip(self.blends, reversed(finer), strict=True):
            x = blend(ops.resize(x, (skip.shape[-2], skip.shape[-1]), skip))
        return self.head(x)

    def _over_picture(self, tokens: Tensor, height: int, width: int, stride: int) -> Tensor:
        """N×D×h×w patches, some of them padded, sampled on a grid of that stride that covers H×W pixels."""
        one = torch.ones((), device=tokens.device)
        extent = (one * height / self.encoder.patch[0], one * width / self.encoder.patch[1])
        with torch.autocast(tokens.device.type, enabled=False):
            return sample(tokens, (cells_of(height, stride), cells_of(width, stride)), extent)


def cells_of(pixels: int, side: int) -> int:
    """The number of cells that cover some pixels, rounded up without a negative quotient: ONNX truncates towards 0."""
    return (pixels + side - 1) // side


def resampled(places: Tensor, old: tuple[int, int], new: tuple[int, int], prefix: int) -> Tensor:
    """Resample position embeddings, 1×(prefix + cells)×D, to another grid, as timm's `resample_abs_pos_embed` does."""
    first, cells = places[:, :prefix], places[:, prefix:].mT.unflatten(2, old)
    one = torch.ones((), device=places.device)
    with torch.autocast(places.device.type, enabled=False):
        cells = sample(cells, new, (one * old[0], one * old[1]), cubic)
    return torch.cat([first, cells.flatten(2).mT], dim=1)


def rotations(rope: Any, size: tuple[int, int]) -> Tensor:
    """Sines and cosines of a grid's rotary embeddings, as timm computes them, but on the device.

    timm copies them from the CPU, which a captured step cannot do. DINOv3's random changes in training are left out.
    """
    if isinstance(rope, RotaryEmbeddingDinoV3):
        device = rope.periods.device
        sides = [2 * ((torch.arange(cells, device=device) + 0.5) / cells) - 1 for cells in size]
        places = torch.stack(torch.meshgrid(*sides, indexing="ij"), dim=-1).flatten(0, 1)
        return torch.cat(rope._get_pos_embed_from_coords(places), dim=-1)
    found: Tensor = rope.get_embed(shape=size)
    return found


def _refuse_unfit(net: Any, backbone: str) -> None:
    rope = getattr(net, "rope", None)
    usual = isinstance(rope, RotaryEmbeddingDinoV3) and (rope.normalize_coords, rope.grid_offset) == ("separate", 0)
    if rope is not None and not usual and not isinstance(rope, RotaryEmbeddingCat):
        raise UserError(f"model.backbone {backbone}: its rotary embeddings are of an unknown kind. {WAY_OUT}")
    if len(net.blocks) < len(STRIDES):
        raise UserError(f"model.backbone {backbone}: has {len(net.blocks)} blocks, and the decoder needs 4. {WAY_OUT}")
