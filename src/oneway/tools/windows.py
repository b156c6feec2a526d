"""Sliding windows, as benchmarks of crops evaluate: a model sees no more at once than it was trained on.

Each window is looked at by itself, and probabilities are averaged where windows overlap. That is another prediction
than the whole image's, which `oneway predict --tile` keeps to.

Shapes: N images of H×W pixels, C classes; a window has h×w of them.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from oneway.models.favoured import Favoured
from oneway.models.norm import population_statistics
from oneway.ops.losses import upsample

Span = tuple[int, int]
"""Start and end of a window along a side; the end is exclusive."""


def spans(length: int, window: int) -> list[Span]:
    """Windows along a side: one every two thirds of its size, and the last ends with the side."""
    step = max(1, window * 2 // 3)
    last = max(0, -(-(length - window) // step))  # rounded up: the index of the first window that reaches the end
    return [(index * step, min(index * step + window, length)) for index in range(last + 1)]


@torch.no_grad()
def predict_in_windows(model: nn.Module, x: Tensor, window: tuple[int, int]) -> Tensor:
    """The most probable classes, N×H×W, of N×3×H×W images in [0, 1].

    Probabilities are kept for one row of windows: memory does not grow with the height of images.
    """
    network, favour = (model.network, model.favour) if isinstance(model, Favoured) else (model, None)
    count, _, height, width = x.shape
    rows, columns = spans(height, window[0]), spans(width, window[1])
    labels = torch.empty(count, height, width, dtype=torch.int64, device=x.device)
    kept: Tensor | None = None  # sums of rows that the next windows reach, too
    with population_statistics(model):
        for (top, bottom), (until, _) in pairwise([*rows, (height, height)]):
            strip: Tensor | None = None
            for left, right in columns:
                part = x[:, :, top:bottom, left:right]
                found = upsample(network(part), (bottom - top, right - left)).softmax(dim=1)
                if strip is None:
                    strip = found.new_zeros(count, found.shape[1], bottom - top, width)
                    if kept is not None:
                        strip[:, :, : kept.shape[2]] = kept
                strip[..., left:right] += found
            assert strip is not None
            found = strip[:, :, : until - top]
            labels[:, top:until] = (favour(found.log()) if favour else found).argmax(dim=1)
            kept = strip[:, :, until - top :].clone()
    return labels
