"""Cross-entropy of upsampled logits; as a kernel with its gradient in one pass, without a full-resolution tensor.

Shapes: N images of H×W pixels, C classes, logits at h×w.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oneway.common.terms import IGNORE
from oneway.ops.backend import tl, triton
from oneway.ops.cells import (
    LN_2,
    PADDING,
    Shape,
    corner_of,
    intervals_of_program,
    kernel_upsamples,
    log_sum_exp,
    pad_logits,
    upsampled,
)
from oneway.ops.collective import total
from oneway.ops.gradient import PartialSums, mean_loss, store_contributions, store_sums
from oneway.ops.losses import pixels_of, upsample


def cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean cross-entropy over the N×H×W (or N) labels that are not ignored; 0 where all are.

    A weight, of the labels' shape, multiplies the losses of pixels; it does not change how many pixels count.
    """
    if labels.ndim == 3 and kernel_upsamples(logits, pixels_of(labels)):
        return cross_entropy_by_kernel(logits, labels, weight)
    if labels.ndim == 3:
        logits = upsample(logits, pixels_of(labels))
    if weight is None:
        loss = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    else:
        loss = (weight * F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="none")).sum()
    return loss / total((labels != IGNORE).sum()).clamp(min=1)


def confident_cross_entropy(target: Tensor, logits: Tensor, valid: Tensor | None, confidence: float) -> Tensor:
    """Cross-entropy with the target's classes, where its probability exceeds `confidence`; mean over all valid pixels.

    Pixels below the confidence count as zeros, as in FixMatch: the fewer are confident, the smaller the loss.
    """
    certainty, labels = target.max(dim=1)
    labels = labels if valid is None else torch.where(valid, labels, IGNORE)
    return cross_entropy(logits, labels, weight=(certainty > confidence).to(certainty.dtype))


def cross_entropy_by_kernel(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """`cross_entropy` by a kernel, for N×H×W labels, which are classes or IGNORE."""
    shape = Shape.of(logits, pixels_of(labels))
    partial_sums = PartialSums.empty(len(logits), shape, logits.device)
    _cross_entropy[shape.grid(len(logits))](
        pad_logits(logits.detach()),
        labels.contiguous(),
        labels if weight is None else weight.float().contiguous(),  # what is absent is never read
        *partial_sums,
        IGNORED=IGNORE,
        WEIGHTED=weight is not None,
        **shape.constants(),
    )
    return mean_loss(logits, partial_sums)


@triton.jit
def _cross_entropy(
    padded,
    labels,
    weights,
    contributions,
    sums,
    IGNORED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    C: tl.constexpr,
    h: tl.constexpr,
    w: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    DOWN: tl.constexpr,
    RIGHT: tl.constexpr,
    INTERVALS: tl.constexpr,
):
    n, row, column, y, x, exists, share_down, share_right = intervals_of_program(h, w, H, W, DOWN, RIGHT, INTERVALS)
    corner = corner_of(padded, n, row, column, C, h, w, RIGHT)
    normaliser = log_sum_exp(corner, share_down, share_right, C, h, w)

    label = tl.load(labels + (n * H + y) * W + x, exists, other=IGNORED).to(tl.int32)
    counted = label != IGNORED
    factor = tl.load(weights + (n * H + y) * W + x, exists, other=0) if WEIGHTED else 1.0
    loss = tl.zeros_like(normaliser)
    contributions += (n * C * (h + 1) + row) * 4 * (w + 1)
    for c in range(C):
        logits = upsampled(corner, share_down, share_right, w)
        hit = label == c
        loss += tl.where(hit, normaliser - logits, 0)
        gradient = tl.where(counted, factor * (tl.exp2(logits - normaliser) - hit.to(tl.float32)), 0)
        store_contributions(contributions, gradient, share_down, share_right, column, w, RIGHT)
        corner += (h + PADDING) * (w + PADDING)
        contributions += (h + 1) * 4 * (w + 1)
    store_sums(sums, factor * loss * LN_2, counted)
