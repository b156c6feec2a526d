"""The first convolution of an encoder: few channels at stride 2, computed with four times the channels at stride 1.

Space-to-depth: quads of 2×2 pixels become cells with the channels of all four, and the weights are rearranged to match,
padded with zeros. On GPUs 16 channels with 4×4 taps take half the time of 3 channels with 7×7 taps, since channels are
multiplied 8 at a time. The result is the same up to the order of summation.

Shapes: N×C×H×W images, N×O×h×w outputs; K×K taps over pixels, A×B over cells.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oneway.ops.backend import kernel_takes, tl, triton
from oneway.ops.depthwise import convolve, window_of

CELLS = 256
"""Cells of a program."""


def stem(x: Tensor, layer: nn.Conv2d, same: bool = False) -> Tensor:
    """The convolution of images by a layer with stride 2; with `same`, padded as TensorFlow does."""
    if not kernel_folds(x, layer):
        return convolve(x, layer, same)
    size, window = layer.kernel_size[0], window_of(x, layer, same)
    reach = [(before + 1) // 2 for before in (window.top, window.left)]  # cells before the first output's own
    taps = [back + (size - 1 - before) // 2 + 1 for back, before in zip(reach, (window.top, window.left), strict=True)]
    cells = fold(x, reach, (window.height + taps[0] - 1, window.width + taps[1] - 1))
    fronts = [2 * back - before for back, before in zip(reach, (window.top, window.left), strict=True)]
    pads = [part for axis in (1, 0) for part in (fronts[axis], 2 * taps[axis] - size - fronts[axis])]
    weight = F.pad(layer.weight, pads).unflatten(3, (taps[1], 2)).unflatten(2, (taps[0], 2))  # O×C×A×2×B×2
    weight = weight.permute(0, 2, 4, 1, 3, 5).flatten(3)  # O×A×B×4C, so that channels come last in memory
    weight = F.pad(weight, (0, cells.shape[1] - weight.shape[3])).permute(0, 3, 1, 2)
    return F.conv2d(cells, weight, layer.bias)


def kernel_folds(x: Tensor, layer: nn.Conv2d) -> bool:
    """Whether the layer can be computed by folding; images must not need a gradient."""
    return (
        layer.kernel_size[0] == layer.kernel_size[1]
        and layer.stride == (2, 2)
        and layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.in_channels <= 4
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and max(layer.padding) < layer.kernel_size[0]
        and x.ndim == 4
        and min(x.shape[2:]) >= layer.kernel_size[0]
        and not x.requires_grad
        and kernel_takes(x, layer.weight)
    )


def fold(x: Tensor, before: list[int], size: tuple[int, int]) -> Tensor:
    """N×16×`size` cells of N×C×H×W images, in channels-last layout and the precision of activations.

    Channel 4c + 2i + j of cell (a, b) is channel c of pixel (2(a − before₀) + i, 2(b − before₁) + j); 0 where there is
    none.
    """
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    cells = torch.empty(len(x), 16, *size, device=x.device, dtype=dtype, memory_format=torch.channels_last)
    grid = triton.cdiv(size[0] * size[1], CELLS), len(x)
    _fold[grid](x, cells, *x.stride(), *x.shape[1:], *size, *before, CELLS=CELLS)
    return cells


@triton.jit(do_not_specialize=["H", "W", "rows", "columns", "top", "left"])
def _fold(x, cells, stride_n, stride_c, stride_y, stride_x, C, H, W, rows, columns, top, left, CELLS: tl.constexpr):
    n = tl.program_id(1).to(tl.int64)
    cell, channel = tl.program_id(0) * CELLS + tl.arange(0, CELLS)[:, None], tl.arange(0, 16)[None, :]
    exists = cell < rows * columns
    i = 2 * (cell // columns - top) + channel // 2 % 2
    j = 2 * (cell % columns - left) + channel % 2
    inside = exists & (channel < 4 * C) & (i >= 0) & (i < H) & (j >= 0) & (j < W)
    value = tl.load(x + n * stride_n + channel // 4 * stride_c + i * stride_y + j * stride_x, inside, other=0)
    tl.store(cells + (n * rows * columns + cell) * 16 + channel, value.to(cells.dtype.element_ty), exists)
