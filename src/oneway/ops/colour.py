"""Colour jitter of images: brightness, contrast, saturation, hue; some images grey, some blurred. Per image.

Probabilities are those of the strong augmentation of FixMatch and UniMatch for segmentation; each step is what
torchvision's function of the same name does.

Shapes: N images of H×W pixels, RGB in [0, 1] going in and coming out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oneway.draws import Colours
from oneway.ops.photometric import shift_hue

PROBABILITIES = (0.8, 0.2, 0.5)
"""Of changing colours, of grey, of blur."""
REACH = 5
"""Pixels on either side that a blur takes in."""
GREY = (0.2989, 0.587, 0.114)
"""Shares of red, green and blue in the grey of a colour."""


def jitter_colours(x: Tensor, draw: Colours, strength: float) -> Tensor:
    """N×3×H×W images; at strength 0 the identity but for rounding, and above 1 no more probable than at 1."""
    pairs = zip(draw.lots.T, PROBABILITIES, strict=True)
    coloured, grey, blurred = ((lot < min(1, strength) * probability).view(-1, 1, 1, 1) for lot, probability in pairs)
    brightness, contrast, saturation, hue = (
        torch.where(coloured, strength * change.to(x.dtype).view(-1, 1, 1, 1), 0)
        for change in (draw.brightness, draw.contrast, draw.saturation, draw.hue)
    )
    x = (x * (1 + brightness)).clamp(0, 1)
    mean = grey_of(x).mean(dim=(2, 3), keepdim=True)
    x = torch.lerp(mean.expand_as(x), x, 1 + contrast).clamp(0, 1)
    x = torch.lerp(grey_of(x).expand_as(x), x, 1 + saturation).clamp(0, 1)
    x = shift_hue(x, hue)
    x = torch.where(grey, grey_of(x), x)
    return torch.where(blurred, blur(x, draw.blur.to(x.dtype)), x)


def grey_of(x: Tensor) -> Tensor:
    """N×1×H×W."""
    red, green, blue = x.split(1, dim=1)
    return GREY[0] * red + GREY[1] * green + GREY[2] * blue


def blur(x: Tensor, deviation: Tensor) -> Tensor:
    """Each image with a Gaussian of its own, mirrored at the border: rows, then columns."""
    offsets = torch.arange(-REACH, REACH + 1, device=x.device, dtype=x.dtype)
    weights = (-0.5 * (offsets / deviation[:, None]).square()).softmax(dim=1)  # N×11
    for axis, padding in ((2, (0, 0, REACH, REACH)), (3, (REACH, REACH, 0, 0))):
        length, padded = x.shape[axis], F.pad(x, padding, mode="reflect")
        shifted = [padded.narrow(axis, k, length) * weights[:, k].view(-1, 1, 1, 1) for k in range(2 * REACH + 1)]
        x = torch.stack(shifted).sum(dim=0)
    return x
