"""Cross-entropy of upsampled logits and its gradient in one pass, without a full-resolution tensor.

Shapes: N images of H×W pixels, C classes, logits at h×w.
"""

# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from oneway.data.dataset import IGNORE
from oneway.kernels.gradient import Traces, mean, store_contributions, store_sums
from oneway.kernels.grid import LN_2, PADDING, Shape, corner_of, framed, intervals_of_program, log_sum_exp, upsampled


def fused_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """`losses.cross_entropy` of N×C×h×w logits and N×H×W labels, which are classes or IGNORE."""
    shape = Shape.of(logits, (labels.shape[1], labels.shape[2]))
    traces = Traces.empty(len(logits), shape, logits.device)
    _cross_entropy[shape.grid(len(logits))](
        framed(logits.detach()), labels.contiguous(), *traces, IGNORED=IGNORE, **shape.constants()
    )
    return mean(logits, traces)


@triton.jit
def _cross_entropy(
    frame,
    labels,
    contributions,
    sums,
    IGNORED: tl.constexpr,
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
    corner = corner_of(frame, n, row, column, C, h, w, RIGHT)
    normaliser = log_sum_exp(corner, share_down, share_right, C, h, w)

    label = tl.load(labels + (n * H + y) * W + x, exists, other=IGNORED).to(tl.int32)
    counted = label != IGNORED
    loss = tl.zeros_like(normaliser)
    contributions += (n * C * (h + 1) + row) * 4 * (w + 1)
    for c in range(C):
        logits = upsampled(corner, share_down, share_right, w)
        hit = label == c
        loss += tl.where(hit, normaliser - logits, 0)
        gradient = tl.where(counted, tl.exp2(logits - normaliser) - hit.to(tl.float32), 0)
        store_contributions(contributions, gradient, share_down, share_right, column, w, RIGHT)
        corner += (h + PADDING) * (w + PADDING)
        contributions += (h + 1) * 4 * (w + 1)
    store_sums(sums, loss * LN_2, counted)
