"""The most probable class of every pixel and its probability, without a tensor of logits at full size.

Shapes: N×C×h×w logits (h×w cells) for H×W pixels.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from oneway.ops.backend import kernel_takes, tl, triton
from oneway.ops.losses import Pixels, upsample
from oneway.ops.resize import cells_around, mixture

BAND = 2**20
"""Upsampled logits that are in memory at a time: they fit into a processor's cache."""

AT_ONCE = 2**22
"""Most pixels of an image that is upsampled at once where the upsampling ratio is no power of two."""

WIDE = 128
"""Columns from which on PyTorch has one method for bands and for the whole; small images it interpolates by another."""

READ = 4096
"""Logits that a program loads at a time, for each of the four cells around its pixels."""


def most_probable(logits: Tensor, pixels: Pixels, confidence: bool = True) -> tuple[Tensor, Tensor]:
    """N×H×W classes, as bytes, and their probabilities, of logits that are upsampled bilinearly.

    Without `confidence`, there are N×0 probabilities: on a CPU they take a third of the time.

    The classes are those of `upsample(logits, pixels).argmax(dim=1)`. A kernel, and heights above `AT_ONCE` that are
    no multiple of the cells', may decide otherwise where two classes are equal but for rounding.
    """
    if kernel_takes(logits) and logits.numel() > 0:
        classes, probabilities = most_probable_by_kernel(logits, pixels)
        return classes, probabilities if confidence else probabilities[:, 0, :0]
    classes = torch.empty(len(logits), *pixels, dtype=torch.uint8, device=logits.device)
    probabilities = torch.empty(len(logits), *(pixels if confidence else (0,)), device=logits.device)
    for n in range(len(logits)):
        for top, bottom in bands(logits.shape[1], logits.shape[2], pixels):
            rows = upsample_rows(logits[n : n + 1], pixels, top, bottom)
            if confidence:
                classes[n, top:bottom], probabilities[n, top:bottom] = largest_of(rows)
            else:
                classes[n, top:bottom] = rows.max(dim=1).indices[0]  # on a CPU, sooner than argmax
    return classes, probabilities


def is_exact(logits: Tensor, pixels: Pixels) -> bool:
    """Whether `most_probable` gives the classes of `upsample(logits, pixels).argmax(dim=1)`, whatever rounding does."""
    if kernel_takes(logits):
        return False
    if next(bands(logits.shape[1], logits.shape[2], pixels)) == (0, pixels[0]):
        return True
    return _exact_ratio(logits.shape[2], pixels[0]) is not None and pixels[1] >= WIDE


def largest_of(logits: Tensor) -> tuple[Tensor, Tensor]:
    """H×W classes and probabilities of 1×C×H×W logits, which are overwritten."""
    largest, winner = logits.max(dim=1)
    return winner[0].to(torch.uint8), logits.sub_(largest[:, None]).exp_().sum(dim=1).reciprocal_()[0]


def bands(classes: int, cells: int, pixels: Pixels) -> Iterator[tuple[int, int]]:
    """Bands of an image, as first and end row, for `upsample_rows` to compute one after the other."""
    height, width = pixels
    ratio = _exact_ratio(cells, height)
    if ratio is None and height * width <= AT_ONCE:
        rows = height
    else:
        rows = max(1, BAND // (classes * width * (ratio or 1))) * (ratio or 1)
    for top in range(0, height, rows):
        yield top, min(top + rows, height)


def upsample_rows(logits: Tensor, pixels: Pixels, top: int, bottom: int, first: int = 0, cells: int = 0) -> Tensor:
    """Rows top … bottom − 1 of the upsampled logits, equal to those of `upsample`, to the bit for exact ratios.

    Args:
        logits: 1×C×h×w, or only the rows that are needed.
        pixels: H×W of the whole image.
        top: The first row; a multiple of the ratio of H to h where that is a power of two.
        bottom: The row after the last.
        first: The index of the first row of `logits` in the whole.
        cells: The number of rows of the whole, where `logits` has only some of them.
    """
    height, width = pixels
    cells = cells or logits.shape[2]
    if (top, bottom) == (0, height):
        return upsample(logits, pixels)
    if ratio := _exact_ratio(cells, height):
        # With a cell more on either side, positions differ by whole cells from those in the whole, and shares do not.
        above, below = max(0, top // ratio - 1), min(cells, -(-bottom // ratio) + 1)
        part = upsample(logits[:, :, above - first : below - first], ((below - above) * ratio, width))
        return part[:, :, top - above * ratio : bottom - above * ratio]
    position = (torch.arange(top, bottom, dtype=torch.float64) + 0.5) * (cells / height) - 0.5
    upper = position.clamp_(0, cells - 1).long()
    share = (position - upper).float()[:, None].to(logits.device)
    lower = (upper + 1).clamp_(max=cells - 1)
    upper_rows, lower_rows = (logits[:, :, (rows - first).to(logits.device)].float() for rows in (upper, lower))
    mixed = torch.lerp(upper_rows, lower_rows, share)
    return F.interpolate(mixed, (bottom - top, width), mode="bilinear", align_corners=False)


def _exact_ratio(cells: int, length: int) -> int | None:
    """Pixels per cell if that is a power of two, so that positions and weights are exact; else None."""
    ratio = length // cells
    return ratio if ratio * cells == length and ratio & (ratio - 1) == 0 else None


def most_probable_by_kernel(logits: Tensor, pixels: Pixels) -> tuple[Tensor, Tensor]:
    """`most_probable` by a kernel, in one pass over the pixels."""
    n, classes, *cells = logits.shape
    logits = logits.contiguous(memory_format=torch.channels_last)
    winner = torch.empty(n, *pixels, dtype=torch.uint8, device=logits.device)
    confidence = torch.empty(n, *pixels, device=logits.device)
    channels = triton.next_power_of_2(classes)
    columns = max(1, min(READ // channels, triton.next_power_of_2(pixels[1])))
    grid = triton.cdiv(pixels[1], columns), pixels[0], n
    _most_probable[grid](logits, winner, confidence, classes, *cells, *pixels, COLUMNS=columns, CHANNELS=channels)
    return winner, confidence


@triton.jit(do_not_specialize=["h", "w", "H", "W"])
def _most_probable(x, winner, confidence, C, h, w, H, W, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr):
    n, row = tl.program_id(2).to(tl.int64), tl.program_id(1)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    channel = tl.arange(0, CHANNELS)[None, :]
    above, below, share_down = cells_around(row, H, h)
    left, right, share_right = cells_around(column[:, None], W, w)
    exists = (column[:, None] < W) & (channel < C)
    upper = mixture(x + (n * h + above) * w * C, left * C + channel, right * C + channel, share_right, exists)
    lower = mixture(x + (n * h + below) * w * C, left * C + channel, right * C + channel, share_right, exists)
    logits = tl.where(channel < C, upper + (lower - upper) * share_down, float("-inf"))
    largest = tl.max(logits, axis=1)
    total = tl.sum(tl.where(channel < C, tl.exp(logits - largest[:, None]), 0), axis=1)
    # The first of equal ones; where a logit is not a number, none is equal.
    hits = tl.where((logits == largest[:, None]) & (channel < C), channel, C)
    first = tl.minimum(tl.min(hits, axis=1), C - 1)
    place = (n * H + row) * W + column
    tl.store(winner + place, first.to(tl.uint8), column < W)
    tl.store(confidence + place, 1 / total, column < W)
