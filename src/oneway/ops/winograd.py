"""3×3 convolutions with two thirds of the multiplications, for prediction on a CPU: Winograd's F(2, 3) along rows.

A pair of neighbouring results needs six multiplications for each row of the kernel; with four transformed inputs it
needs four. Weights are transformed in double precision; results are as accurate as PyTorch's in channels-last layout.

Shapes: N images of C channels and H×W cells, in T = W/2 pairs of neighbours; K channels of results.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

AT_ONCE = 2**22
"""Cells times channels of a strip of rows, whose transformed inputs take some 64 MB."""


def winograd_weights(weight: Tensor) -> Tensor:
    """Transform K×C×3×3 weights to 4×K×C×3×1, for the four transformed inputs of each pair."""
    left, middle, right = weight.double().permute(3, 0, 2, 1).contiguous()  # in the order of channels last
    outer = left + right
    return torch.stack((left, (outer + middle) / 2, (outer - middle) / 2, right)).float().transpose(2, 3)[..., None]


def winograd_conv(x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
    """N×K×H×W of N×C×H×W: the convolution with `winograd_weights`, padded by a cell of zeros on every side."""
    columns = x.shape[3]
    x = (F.pad(x, (0, 1)) if columns % 2 else x).contiguous(memory_format=torch.channels_last)
    n, channels, height, width = x.shape
    pairs = x.permute(0, 2, 3, 1).unflatten(2, (width // 2, 2))
    result = x.new_empty(n, height, width // 2, 2, weights.shape[1])
    rows = max(1, AT_ONCE // (n * width * max(channels, weights.shape[1])))
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        sums = _sums(pairs, top, bottom).permute(0, 1, 4, 2, 3)
        # The second product is added to both neighbours, so the bias is added there.
        found = [F.conv2d(s, w, bias if j == 1 else None) for j, (s, w) in enumerate(zip(sums, weights, strict=True))]
        first, second, third, fourth = (product.permute(0, 2, 3, 1) for product in found)
        even, odd = result[:, top:bottom].unbind(3)
        torch.add(first, second, out=even).add_(third)
        torch.sub(second, third, out=odd).sub_(fourth)
    found_at = result.flatten(2, 3).permute(0, 3, 1, 2)
    return found_at if columns == width else found_at[..., :columns].contiguous(memory_format=torch.channels_last)


def _sums(pairs: Tensor, top: int, bottom: int) -> Tensor:
    """The transformed inputs, 4×N×R×T×C, of rows top − 1 … bottom; 0 outside the image."""
    n, height, width, _, channels = pairs.shape
    sums = pairs.new_empty(4, n, bottom - top + 2, width, channels)
    if top == 0:
        sums[:, :, 0] = 0
    if bottom == height:
        sums[:, :, -1] = 0
    first, last = max(0, top - 1), min(bottom + 1, height)
    even, odd = pairs[:, first:last].unbind(3)
    before, both, difference, behind = sums[:, :, first - top + 1 : last - top + 1]
    torch.sub(odd[:, :, :-1], odd[:, :, 1:], out=before[:, :, 1:])
    torch.neg(odd[:, :, 0], out=before[:, :, 0])
    torch.add(even, odd, out=both)
    torch.sub(odd, even, out=difference)
    torch.sub(even[:, :, :-1], even[:, :, 1:], out=behind[:, :, :-1])
    behind[:, :, -1] = even[:, :, -1]
    return sums
