"""ClassMix (Olsson et al., 2021): half of an image's classes, and all their pixels, are pasted onto another image.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor


def half_of_classes(labels: Tensor, u: Tensor, classes: int) -> Tensor:
    """N×H×W: true where the pixel's class is one of the chosen, which are ⌊half⌋ of those in its image.

    Args:
        labels: N×H×W, in 0 … C − 1.
        u: N×256 uniform numbers; the classes with the smallest ones are chosen.
        classes: C.
    """
    flat = labels.flatten(1)
    present = torch.zeros(len(labels), classes, dtype=torch.bool, device=labels.device).scatter(1, flat, True)
    ranks = torch.where(present, u[:, :classes], 2).argsort(dim=1, stable=True).argsort(dim=1)
    chosen = ranks < present.sum(dim=1, keepdim=True) // 2
    return chosen.gather(1, flat).view_as(labels)


def paste(x: Tensor, mask: Tensor) -> Tensor:
    """Paste the pixels of image n that the mask selects onto image n + ⌊N/2⌋, modulo N.

    Args:
        x: N×…×H×W images or labels.
        mask: N×H×W, which pixels are pasted.
    """
    mask = mask.view(len(x), *[1] * (x.ndim - 3), *mask.shape[1:])
    return torch.where(mask, x, x.roll(-(len(x) // 2), dims=0))
