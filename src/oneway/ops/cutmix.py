"""CutMix (French et al., 2020): the two images of a pair exchange a rectangle; and the squares of Cutout.

Both images of a pair are used, each with what the other lost: CutMix is its own inverse here.
Shapes: N images of H×W pixels; image n is paired with image n + ⌊N/2⌋, an odd one is left alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oneway.draws import Boxes, Squares


def cutmix(x: Tensor, boxes: Boxes) -> Tensor:
    """N×C×H×W images or predictions with rectangles exchanged within pairs; N×C predictions mixed by the box area.

    The rectangles are those of either perturbation: half of the area (`cutmix`), or smaller ones (`boxes`).
    """
    pairs = len(boxes.height)
    first, second, rest = x[:pairs], x[pairs : 2 * pairs], x[2 * pairs :]
    if x.ndim == 2:
        half = torch.full((pairs, 1), 0.5, device=x.device, dtype=x.dtype)
        share = half if boxes.area is None else boxes.area[:, None].to(x.dtype)
    else:
        share = box_mask(boxes, (x.shape[-2], x.shape[-1]))[:, None].to(x.dtype)
    mixed = (torch.lerp(first, second, share), torch.lerp(second, first, share), rest)
    return torch.cat(mixed)


def box_mask(boxes: Boxes, size: tuple[int, int]) -> Tensor:
    """⌊N/2⌋×H×W: true inside the rectangles, whose sides are rounded to whole pixels."""
    top, bottom, left, right = edges(boxes, size)[:, :, None].unbind(dim=1)
    rows, columns = (torch.arange(length, device=top.device) for length in size)
    inside_rows, inside_columns = (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
    return inside_rows[:, :, None] & inside_columns[:, None, :]


def edges(boxes: Boxes, size: tuple[int, int]) -> Tensor:
    """⌊N/2⌋×4 whole numbers: top, bottom, left and right of each rectangle; bottom and right are exclusive."""
    rows = _between(boxes.height, boxes.top, size[0])
    columns = _between((0.5 if boxes.area is None else boxes.area) / boxes.height, boxes.left, size[1])
    return torch.stack((*rows, *columns), dim=1)


def square_mask(squares: Squares, size: tuple[int, int]) -> Tensor:
    """N×H×W: true inside the squares, as far as they lie in the image; sides and centres are rounded down to pixels."""
    rows, columns = (
        _around(squares.side, place, length) for place, length in zip((squares.y, squares.x), size, strict=True)
    )
    return rows[:, :, None] & columns[:, None, :]


def _around(share: Tensor, centre: Tensor, length: int) -> Tensor:
    half, middle = ((share * length).floor() / 2).floor()[:, None], (centre * length).floor()[:, None]
    pixels = torch.arange(length, device=share.device)
    return (pixels >= middle - half) & (pixels < middle + half)


def _between(share: Tensor, place: Tensor, length: int) -> tuple[Tensor, Tensor]:
    extent = (share * length).round()
    start = (place * (length - extent)).round()
    return start, start + extent
