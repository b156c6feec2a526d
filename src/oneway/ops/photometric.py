"""The photometric component T^P: brightness, saturation, hue, contrast, channel order; per image, without clamping.

Shapes: N images of H×W pixels; RGB in [0, 1] going in, unbounded coming out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oneway.draws import Photometric


def photometric(x: Tensor, draw: Photometric) -> Tensor:
    """T^P_φ(x) for a batch N×3×H×W: add b, multiply saturation by s, shift hue by h, multiply by c, permute by π."""
    b, s, h, c = (p.to(x.dtype).view(-1, 1, 1, 1) for p in (draw.brightness, draw.saturation, draw.hue, draw.contrast))
    x = shift_hue(x + b, h, s) * c
    return x.gather(1, draw.permutation[:, :, None, None].expand_as(x))


def shift_hue(x: Tensor, turns: Tensor, saturation: Tensor | float = 1) -> Tensor:
    """Shift the hue of N×3×H×W colours and multiply their saturation, by N×1×1×1 numbers.

    A hue is an angle of the colour hexagon in sixths of a turn; value and chroma are those of HSV. All three are
    defined by differences or by the maximum, so negative channels, which brightness can cause, need no special case.
    """
    value = x.amax(dim=1, keepdim=True)
    chroma = value - x.amin(dim=1, keepdim=True)
    hue = _hexagon_angle(x, value, chroma) + 6 * turns
    return value - saturation * chroma * _distance_from_peak(hue)


def with_strength(draw: Photometric, strength: float) -> Photometric:
    """The draw at s_P: s_P·b, s^s_P, s_P·h, c^s_P, and π with probability min(s_P, 1). Zero is the identity."""
    kept = torch.arange(3, device=draw.permutation.device)
    return draw._replace(
        brightness=strength * draw.brightness,
        saturation=draw.saturation**strength,
        hue=strength * draw.hue,
        contrast=draw.contrast**strength,
        permutation=torch.where((draw.u < strength)[:, None], draw.permutation, kept),
    )


def _hexagon_angle(x: Tensor, value: Tensor, chroma: Tensor) -> Tensor:
    """HSV hue of N×3×H×W pixels in sixths of a turn, N×1×H×W; any number where a pixel is grey."""
    red, green, blue = x.split(1, dim=1)
    chroma = torch.where(chroma == 0, 1, chroma)
    return torch.where(
        value == red,
        (green - blue) / chroma,
        torch.where(value == green, 2 + (blue - red) / chroma, 4 + (red - green) / chroma),
    )


def _distance_from_peak(hue: Tensor) -> Tensor:
    """How far red, green and blue lie below the maximum at a hue, as fractions of the chroma: N×3×H×W."""
    offsets = torch.arange(5, 0, -2, device=hue.device, dtype=hue.dtype).view(1, 3, 1, 1)
    k = (offsets + hue) % 6
    return torch.minimum(k, 4 - k).clamp(0, 1)
