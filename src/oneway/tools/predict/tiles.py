"""Sliding windows over images that are too large for one pass: overlapping tiles, averaged probabilities.

Shapes: an image has H×W pixels, a tile h×w of them; C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

SMALLEST_TILE = 32


def starts(length: int, tile: int) -> list[int]:
    """Where tiles begin along a side: evenly from border to border, each sharing a quarter or more with the next."""
    if length <= tile:
        return [0]
    count = 1 + math.ceil((length - tile) / (tile - tile // 4))
    return [round(index * (length - tile) / (count - 1)) for index in range(count)]


def slide(
    probabilities: Callable[[Tensor], Tensor], image: Tensor, tile: tuple[int, int], batch: int
) -> tuple[Tensor, Tensor]:
    """Labels and confidence (H×W, on the CPU) from the mean of the probabilities that a pixel gets in its tiles.

    Probabilities of all classes are kept for one row of tiles at a time, so that memory hardly grows with the image.

    Args:
        probabilities: N×C×h×w of N×h×w×3 tiles.
        image: H×W×3.
        tile: Height and width; cut to the image where that is smaller.
        batch: Tiles per pass.
    """
    height, width = image.shape[:2]
    rows, columns = min(tile[0], height), min(tile[1], width)
    labels = torch.empty(height, width, dtype=torch.uint8)
    confidence = torch.empty(height, width)
    tops, lefts = starts(height, rows), starts(width, columns)
    sums: Tensor | None = None
    for top, following in zip(tops, [*tops[1:], height], strict=True):
        for chunk in (lefts[at : at + batch] for at in range(0, len(lefts), batch)):
            tiles = torch.stack([image[top : top + rows, left : left + columns] for left in chunk])
            for left, found in zip(chunk, probabilities(tiles), strict=True):
                sums = found.new_zeros(found.shape[0], rows, width) if sums is None else sums
                sums[:, :, left : left + columns] += found
        assert sums is not None
        finished = following - top  # rows that no later tile reaches
        largest, winner = sums[:, :finished].max(dim=0)
        labels[top:following] = winner.to("cpu", torch.uint8)
        # Each tile's probabilities sum to one: their sum counts the tiles.
        confidence[top:following] = (largest / sums[:, :finished].sum(dim=0)).cpu()
        sums = torch.cat([sums[:, finished:], torch.zeros_like(sums[:, :finished])], dim=1)
    return labels, confidence
